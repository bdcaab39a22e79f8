"""What the console says of a run that has ended."""

__all__ = ["audit", "console", "replay"]
