"""What a target is asked to generate: one cell, and its prompt as ids.

`in_process` drives llama.cpp and the engine in the worker itself and gives `Transcript`s.
`servers.client` asks a server, over the interface of `llama_cpp` or `openai`, and gives `Answer`s:
of a server only the text is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..grammars.case import Case
from ..model.names import Unit
from ..native.llama import Vocab
from ..vocab.sentencepiece.encoder import SpmEncoder
from ..vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class Request:
    """One cell to generate."""

    key: str
    """The `cell_key`."""
    case: Case
    builder: str
    max_tokens: int
    repeat: int | None = None
    """Which of several samples of the same cell; None where there is one."""

    @property
    def identity(self) -> str:
        """What tells it from every other request of the run."""
        return self.key if self.repeat is None else f"{self.key}#{self.repeat}"

    @property
    def draw(self) -> str:
        """What names its draws: alike under every builder, so that builders meet equal luck."""
        return f"{self.case.suite}/{self.case.id}#{self.repeat or 0}"

    @property
    def unit(self) -> Unit:
        """The cell as a unit of work."""
        one_of = () if self.repeat is None else (f"{self.repeat}",)
        return ("cell", self.builder, self.case.suite, self.case.id, *one_of)


def prompt_ids(
    vocab: Vocab, vocabulary: Vocabulary, encoder: SpmEncoder | None, prompt: str
) -> tuple[int, ...]:
    """The prompt as llama.cpp's server encodes it (`add_special`, `parse_special`).

    Under another prefix scheme it is encoded by `encoder`, with the same tokens added. A vocabulary
    that adds nothing of its own to an empty prompt still needs one token to start from: its BOS,
    else id 0.
    """
    data = prompt.encode()
    if encoder is None:
        ids = vocab.tokenize(data, add_special=True, parse_special=True)
    else:
        ids = [
            *([vocabulary.bos] if vocab.adds("bos") else []),
            *encoder.encode(data),
            *([vocabulary.eos] if vocab.adds("eos") else []),
        ]
    return tuple(ids) or (max(vocabulary.bos, 0),)
