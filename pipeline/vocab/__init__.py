"""Vocabularies: find and read model files; true bytes per id; byte-exact splits into tokens.

Imports `native` and the packages before it.
"""

__all__ = [
    "chat_template",
    "files",
    "prefix_schemes",
    "sentencepiece",
    "spelling",
    "token_types",
    "tokenizer_json",
    "vocabulary",
]
