"""Token tables and engines, which are under test: one file per builder and per library.

The code of a library runs only in a child process. Imports `vocab` and the packages before it.
"""

__all__ = ["builders", "libraries", "llguidance", "protocol", "settings", "table"]
