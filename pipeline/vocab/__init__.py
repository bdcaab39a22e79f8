"""Vocabularies: from a file, wherever it is, to true bytes per id and byte-exact spellings.

Imports `native` and what is below it.
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
