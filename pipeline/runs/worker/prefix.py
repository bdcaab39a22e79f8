"""The prefix stage of an audit: where implementations put SentencePiece's dummy prefix."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from ...audit.prefix_placement import Answer, Placement, first_difference
from ...model.errors import LoadRefused, PipelineError
from ...model.names import Row
from ...model.verdicts import Status
from ...system import processes, provenance
from ...vocab import chat_template
from ...vocab.files import sentencepiece
from ...vocab.token_types import UNRENDERED
from .session import Session

_LLAMA = "llama.cpp"
_OURS = "byte-exact"
_HERE = "here"
"""In `audit.references`: the Python in use."""
_TIME_LIMIT = 120
"""Seconds that the reference tokenizers of one Python may take."""


def run(session: Session) -> None:
    """Send `prefix`, `flags` and `templates` of a SentencePiece vocabulary; no rows for others."""
    fit = session.prompts.scheme is not None and not session.vocabulary.tokenize_can_throw
    if not session.start_if_pending("prefix"):
        return
    if fit:
        _send(session)
    session.channel.done("prefix")


def _send(session: Session) -> None:
    placement = Placement(session.vocabulary)
    try:
        own = list(_own_answers(session, placement))
    except ValueError as error:  # a damaged file: a score of NaN
        session.channel.rows("prefix", [_unplaced(session, str(error))])
        return
    answers = [*own, *_references(session, placement)]
    for answer in answers:
        session.channel.rows("prefix", _prefix_rows(session, placement, answer))
    session.channel.rows("flags", _flag_rows(session, placement))
    session.channel.rows("templates", _template_rows(session, placement, answers))


def _own_answers(session: Session, placement: Placement) -> Iterator[Answer]:
    texts = [text.encode() for text in placement.texts]
    yield Answer(_LLAMA, [_llama(session, text) for text in texts], [])
    for scheme, encoder in placement.encoders.items():
        yield Answer(f"{_OURS}/{scheme}", [encoder.encode(text) for text in texts], [])


def _references(session: Session, placement: Placement) -> Iterator[Answer]:
    """Answers of the reference tokenizers of each Python in `audit.references`.

    There are none if the vocabulary has no `tokenizer.model`. If several Pythons have the same
    implementation, only its first answer is kept. Raises PipelineError for a Python that gives no
    answer.
    """
    asked = session.job.audit.references
    found = _tokenizer_model(session) if asked else None
    if found is None:
        return
    seen: set[str] = set()
    for python in asked:
        try:
            for answer in _ask(placement, "" if python == _HERE else python, *found):
                if answer.implementation not in seen:
                    seen.add(answer.implementation)
                    yield answer
        except (OSError, ValueError) as error:
            raise PipelineError(
                f"audit.references: {python} runs no reference tokenizer ({error}). Give the "
                "Python of an environment that has some, or `here`."
            ) from None


def _ask(placement: Placement, python: str, model: Path, sha256: str) -> Iterator[Answer]:
    """Answers of the reference tokenizers of one Python for a `tokenizer.model`; empty means this
    Python.

    Raises OSError if it cannot be started, ValueError if it fails.
    """
    environment = {key: v for key, v in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        processes.own("audit.reference_tokenizers", python=python),
        input=json.dumps(placement.request(os.fspath(model), sha256)),
        capture_output=True,
        text=True,
        env=environment | {"HF_HUB_OFFLINE": "1"},
        timeout=_TIME_LIMIT,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr.strip().splitlines()[-1:] or "it wrote no error")
    for line in done.stdout.splitlines():
        said = json.loads(line)
        if "ids" in said:
            yield Answer(said["implementation"], said["ids"], said.get("chats", []))


def _tokenizer_model(session: Session) -> tuple[Path, str] | None:
    """(path, sha256) of this vocabulary's SentencePiece file: its source, or an equal one in
    mistral-common; None if there is neither."""
    tokens = session.job.tokens
    if tokens is not None and tokens.format == "sentencepiece":
        return Path(tokens.path), tokens.sha256
    spec = importlib.util.find_spec("mistral_common")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder, "data").glob("*.model.v*")):
            try:
                texts = sentencepiece.texts(path)
            except LoadRefused:
                continue
            if texts == session.vocabulary.texts:
                return path, provenance.file_sha256(path)
    return None


def _llama(session: Session, data: bytes) -> list[int]:
    return session.model.vocab.tokenize(data, add_special=False, parse_special=True)


def _prefix_rows(session: Session, placement: Placement, answer: Answer) -> Iterator[Row]:
    scheme = placement.matching_schemes(answer.ids)
    for text, ids in zip(placement.texts, answer.ids, strict=True):
        yield {
            "tokenizer": session.job.tokenizer,
            "text": text,
            "implementation": answer.implementation,
            "scheme": scheme,
            "ids": ids,
            "pieces": placement.pieces(ids),
            "discriminating": placement.discriminating(text),
            "status": Status.OK.value,
            "reason": "",
        }


def _unplaced(session: Session, reason: str) -> Row:
    return {
        "tokenizer": session.job.tokenizer,
        "text": None,
        "implementation": _OURS,
        "scheme": None,
        "ids": None,
        "pieces": None,
        "discriminating": None,
        "status": Status.LOAD_REFUSED.value,
        "reason": reason,
    }


def _flag_rows(session: Session, placement: Placement) -> Iterator[Row]:
    """Rows of `flags`: whether `llama_tokenize` adds a space, for each combination of its flags."""
    vocabulary = session.vocabulary
    mark = b"" if placement.marker == -1 else vocabulary.texts[placement.marker]
    for text, add, parse in product((b"Write", mark + b"Write"), (False, True), (False, True)):
        ids = session.model.vocab.tokenize(text, add_special=add, parse_special=parse)
        plain = [token for token in ids if not int(vocabulary.attrs[token]) & UNRENDERED]
        got = b"".join(vocabulary.true_bytes[token] for token in plain)
        yield {
            "tokenizer": session.job.tokenizer,
            "text": text.decode("utf-8", "replace"),
            "add_special": add,
            "parse_special": parse,
            "ids": ids,
            "pieces": placement.pieces(ids),
            "space_added": got.startswith(b" ") and not text.startswith(b" "),
        }


def _template_rows(session: Session, placement: Placement, answers: list[Answer]) -> Iterator[Row]:
    """Rows of `templates`: chats in a GGUF's template, as ids of llama.cpp and of references."""
    template = session.model.meta("tokenizer.chat_template")
    if template is None:
        return
    vocabulary = session.vocabulary
    names = {
        name: vocabulary.texts[token].decode("utf-8", "replace") if token >= 0 else ""
        for name, token in (("bos", vocabulary.bos), ("eos", vocabulary.eos))
    }
    for number, (name, messages) in enumerate(chat_template.CONVERSATIONS.items()):
        row: Row = {"tokenizer": session.job.tokenizer, "conversation": name}
        try:
            text = chat_template.render(template, messages, **names)
        except chat_template.Unrenderable as refusal:
            yield row | _nothing(str(refusal))
            continue
        llama = _llama(session, text.encode())
        references = {
            f"{_OURS}/{s}": e.encode(text.encode()) for s, e in placement.encoders.items()
        }
        references |= {
            answer.implementation: said["ids"]
            for answer in answers
            if answer.chats and (said := answer.chats[number]) is not None
        }
        for reference, ids in references.items():
            at = first_difference(llama, ids)
            yield row | {
                "text": text,
                "reference": reference,
                "declared": reference == f"{_OURS}/{session.prompts.scheme}",
                "llama_ids": llama,
                "ids": ids,
                "first_difference": at,
                "llama_pieces": placement.pieces(llama),
                "pieces": placement.pieces(ids),
                "reason": "",
            }


def _nothing(reason: str) -> Row:
    return {
        "text": None,
        "reference": None,
        "declared": None,
        "llama_ids": None,
        "ids": None,
        "first_difference": None,
        "llama_pieces": None,
        "pieces": None,
        "reason": reason,
    }
