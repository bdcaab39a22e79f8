"""The machine, with no word of tokens or grammars: processes, clocks, hashes, text for terminals.

Imports `model`.
"""

__all__ = ["clock", "files", "memory", "processes", "provenance", "rerun", "resources", "text"]
