"""A SentencePiece encoder: llama.cpp's ids under any prefix scheme, or every byte string back."""

__all__ = ["encoder"]
