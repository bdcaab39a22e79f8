"""Convert a SentencePiece `tokenizer.model`, a protobuf file, to a vocab-only GGUF.

Increase `forge._FORGE_VERSION` when the written bytes change; it is part of the cache name.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from ...model.errors import LoadRefused
from ...system.files import replacing


def sentencepiece_gguf(model_file: Path, out: Path) -> None:
    """Convert a SentencePiece `tokenizer.model` to a vocab-only GGUF as llama.cpp's converter does.

    Piece types are the same numbers in both formats: NORMAL, UNKNOWN, CONTROL, USER_DEFINED,
    UNUSED, BYTE are 1 to 6. `add_space_prefix` is the model's `add_dummy_prefix`. The file is
    parsed as protobuf (`sentencepiece_model.proto`), because `SentencePieceProcessor` does not
    expose `add_dummy_prefix`. Raises `LoadRefused` if the file is not a SentencePiece model, and
    OSError if `out` cannot be written.
    """
    try:
        message = list(_protobuf(model_file.read_bytes()))
        pieces = [dict(_protobuf(_octets(value))) for number, value in message if number == 1]
        trainer = _submessage(message, 2)
        normalizer = _submessage(message, 3)
        texts = [_octets(piece[1]) for piece in pieces]
        scores = [struct.unpack("<f", _octets(piece.get(2, bytes(4))))[0] for piece in pieces]
        types = [_number(piece.get(3, 1)) for piece in pieces]
    except (ValueError, KeyError, IndexError, struct.error) as error:
        raise LoadRefused(f"{model_file}: not a SentencePiece model: {error!r}") from None
    if not texts:
        raise LoadRefused(f"{model_file}: not a SentencePiece model: no pieces")
    import gguf  # takes 0.6 s, and only the first use of a tokenizer needs it

    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary:
        writer = gguf.GGUFWriter(temporary, "llama")
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(texts)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        for name, number, default in (("unk", 40, 0), ("bos", 41, 1), ("eos", 42, 2)):
            token = _number(trainer.get(number, default))
            if token < len(texts):  # an absent token is -1, which protobuf stores as 2**64 - 1
                getattr(writer, f"add_{name}_token_id")(token)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(False)
        writer.add_add_space_prefix(bool(normalizer.get(3, 1)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()


def texts(model_file: Path) -> list[bytes]:
    """The pieces of a SentencePiece `tokenizer.model`, in order of ids. Raises `LoadRefused`."""
    try:
        message = _protobuf(model_file.read_bytes())
        return [
            _octets(dict(_protobuf(_octets(value)))[1]) for number, value in message if number == 1
        ]
    except (ValueError, KeyError, IndexError) as error:
        raise LoadRefused(f"{model_file}: not a SentencePiece model: {error!r}") from None


def _protobuf(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The (field number, value) pairs of one protobuf message; submessages stay bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, position = _varint(data, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"protobuf wire type {wire}")
        if position + size > len(data):
            raise ValueError("it ends in the middle of a field")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        octet = data[position]
        value |= (octet & 127) << shift
        position, shift = position + 1, shift + 7
        if octet < 128:
            return value, position
    raise ValueError("a number of more than ten bytes")


def _submessage(message: list[tuple[int, int | bytes]], number: int) -> dict[int, int | bytes]:
    parts = [_octets(value) for found, value in message if found == number]
    return dict(_protobuf(b"".join(parts)))


def _octets(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number instead of text")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("text instead of a number")
    return value
