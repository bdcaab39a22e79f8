"""Files of models and tokenizers: named, found or fetched, checked, read, forged."""

__all__ = ["forge", "gguf", "resolve", "sentencepiece", "source"]
