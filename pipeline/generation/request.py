"""A request to a target: one cell to generate, and its prompt as ids.

`in_process` runs llama.cpp and the engine in the worker and yields `Transcript`s. `servers.client`
asks a server over the interface `llama_cpp` or `openai` and yields `Answer`s.
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
    """Index of the sample; None if the cell is not repeated."""

    @property
    def identity(self) -> str:
        """Unique name within the run."""
        return self.key if self.repeat is None else f"{self.key}#{self.repeat}"

    @property
    def draw(self) -> str:
        """Name of its random draws. It is the same for every builder, so that builders get equal
        draws."""
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

    Under another prefix scheme it is encoded by `encoder`, with the same BOS and EOS added. If
    the result is empty, it is replaced by the BOS, or by id 0 if there is no BOS, because
    generation needs a token to start from.
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
