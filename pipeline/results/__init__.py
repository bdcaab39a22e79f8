"""Tables of results, and all that is made of tables alone: the console, comparisons, the report.

Imports `model` and `system` only, so that it starts fast and loads no engine.
"""

__all__ = ["compare", "report", "summary", "tables"]
