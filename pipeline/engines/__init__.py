"""Token tables and engines, the things under test: one file per builder and per library.

A library's own code runs in a child process only. Imports `vocab` and what is below it.
"""

__all__ = ["builders", "libraries", "llguidance", "protocol", "settings", "table"]
