"""Finds faults in a vocabulary, a token table, an engine or a grammar.

The package opens no file, starts no process and makes no table of results. It imports `engines`
and lower packages only. `reference_tokenizers` is a separate program, for another Python.
"""

__all__ = [
    "acceptance",
    "canonical",
    "controls",
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
