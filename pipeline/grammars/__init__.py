"""Grammars over bytes: suites and their cases, imported collections, checkers, languages.

Knows no vocabulary, token table or builder; a checker knows no engine. Imports `model` and
`system`. Only `languages` loads llguidance when imported, through its Python interface;
`importers.grammars` loads it to convert GBNF.
"""

__all__ = ["case", "checkers", "importers", "label_witness", "languages", "settings", "suites"]
