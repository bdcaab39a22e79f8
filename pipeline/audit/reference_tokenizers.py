"""Ids of reference tokenizers, from any Python that has them installed.

This is a program; the pipeline never imports it. The last transformers with a slow Llama tokenizer
(4.57.6) cannot be installed together with today's huggingface_hub, so it needs an environment of
its own. The program reports which implementations are not installed.

Standard input is a request in JSON: the path of a `tokenizer.model`, its sha256, the marker token
with its id, the texts, and conversations. The answer is one JSON line for each implementation:
`implementation`, then `ids` (of each text) and, for mistral-common, `chats` (tokens and text of
each conversation; null where its format does not support a role); or, instead of these, `missing`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

_Encode = Callable[[str], list[int]]

_SPLINTR = {
    "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055": "mistral_v1",
    "37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89": "mistral_v2",
}
"""Names of vocabularies that splintr contains, by the sha256 of their `tokenizer.model`."""


def _sentencepiece(request: dict[str, Any]) -> Iterator[tuple[str, _Encode]]:
    sentencepiece: Any = import_module("sentencepiece")
    processor = sentencepiece.SentencePieceProcessor(model_file=request["model"])
    yield f"sentencepiece {version('sentencepiece')}", processor.encode


def _mistral_common(request: dict[str, Any]) -> Iterator[tuple[str, _Encode]]:
    module: Any = import_module("mistral_common.tokens.tokenizers.sentencepiece")
    tokenizer = module.SentencePieceTokenizer(request["model"])
    name = f"mistral-common {version('mistral-common')}"
    yield name, lambda text: tokenizer.encode(text, bos=False, eos=False)


def _splintr(request: dict[str, Any]) -> Iterator[tuple[str, _Encode]]:
    splintr: Any = import_module("splintr")
    if carried := _SPLINTR.get(request["sha256"]):
        tokenizer = splintr.Tokenizer.from_pretrained(carried)
        yield f"splintr {version('splintr-rs')} {carried}", tokenizer.encode


def _transformers(request: dict[str, Any]) -> Iterator[tuple[str, _Encode]]:
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    transformers: Any = import_module("transformers")
    if int(transformers.__version__.split(".")[0]) != 4:
        raise ImportError("transformers 4 is needed, the last version with a slow Llama tokenizer")
    name = f"transformers {transformers.__version__}"
    marker = transformers.AddedToken(request["marker"], special=True)
    added: dict[str, Any] = {"added_tokens_decoder": {request["marker_id"]: marker}}
    additional: dict[str, Any] = {"additional_special_tokens": [request["marker"]]}
    from_slow = additional | {"from_slow": True}
    slow, fast = transformers.LlamaTokenizer, transformers.LlamaTokenizerFast
    for legacy in (True, False):
        for kind, how, options in (
            (slow, "slow, added", added),
            (slow, "slow, additional", additional),
            (fast, "fast", from_slow),
            (fast, "fast, add_prefix_space", from_slow | {"add_prefix_space": True}),
        ):
            made = kind(request["model"], legacy=legacy, **options)
            yield f"{name} {how}, legacy={str(legacy).lower()}", _plain(made)


def _plain(tokenizer: Any) -> _Encode:
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def _mistral_chats(request: dict[str, Any]) -> list[dict[str, Any] | None]:
    """Each conversation as mistral-common encodes it from its messages."""
    requests: Any = import_module("mistral_common.protocol.instruct.request")
    tokenizers: Any = import_module("mistral_common.tokens.tokenizers.mistral")
    tokenizer = tokenizers.MistralTokenizer.from_file(request["model"])
    out: list[dict[str, Any] | None] = []
    for messages in request["conversations"]:
        try:
            asked = requests.ChatCompletionRequest(messages=messages)
            found = tokenizer.encode_chat_completion(asked)
            out.append({"ids": found.tokens, "text": found.text})
        except Exception:  # a role that this version of the format does not have
            out.append(None)
    return out


def main() -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.read())
    for name, make in (
        ("sentencepiece", _sentencepiece),
        ("mistral-common", _mistral_common),
        ("splintr", _splintr),
        ("transformers", _transformers),
    ):
        try:
            for full_name, encode in make(request):
                ids = [[*encode(text)] for text in request["texts"]]
                answer: dict[str, Any] = {"implementation": full_name, "ids": ids}
                if make is _mistral_common:
                    answer["chats"] = _mistral_chats(request)
                print(json.dumps(answer), flush=True)
        except ImportError as error:
            print(json.dumps({"implementation": name, "missing": str(error)}), flush=True)


if __name__ == "__main__":
    main()
