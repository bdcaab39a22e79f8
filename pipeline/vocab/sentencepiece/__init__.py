"""A SentencePiece encoder: llama.cpp's ids under any prefix scheme, or lossless encoding."""

__all__ = ["encoder"]
