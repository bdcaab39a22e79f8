"""Findings: from a vocabulary, a table, an engine and a grammar to what is wrong with them.

Opens no file, starts no process, makes no table of results. Imports `engines` and what is below
it. `reference_tokenizers` is a separate program, for another Python.
"""

__all__ = [
    "acceptance",
    "canonical",
    "engine_mask_kinds",
    "engine_masks",
    "masks",
    "prefix_placement",
    "reference_tokenizers",
    "reproducers",
    "round_trip",
    "settings",
    "small_cases",
    "special_tokens",
    "token_oracle",
    "token_table",
    "upstream",
    "walks",
]
