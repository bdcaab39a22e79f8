"""Grammars over bytes: suites and their cases, collections of others, checkers, languages.

Knows no vocabulary, no token table and no builder; a checker knows no engine. Imports `model` and
`system`. `languages` is the one file that loads llguidance, by its Python interface.
"""

__all__ = ["case", "checkers", "importers", "languages", "settings", "suites"]
