"""The console text of a finished run."""

__all__ = ["audit", "console", "replay"]
