"""The machine: processes, clocks, hashes, text for terminals. Knows no tokens and no grammars.

Imports `model`.
"""

__all__ = ["clock", "files", "memory", "processes", "provenance", "rerun", "resources", "text"]
