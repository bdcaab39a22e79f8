"""Model and tokenizer files: find or download, verify, read and generate them."""

__all__ = ["forge", "gguf", "resolve", "sentencepiece", "source"]
