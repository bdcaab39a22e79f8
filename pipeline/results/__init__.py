"""Tables of results, and everything made of tables alone: console, comparisons, report.

Imports `model` and `system` only, so that it starts fast and loads no engine.
"""

__all__ = ["compare", "report", "standing", "summary", "tables"]
