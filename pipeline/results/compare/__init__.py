"""Two sides of a comparison, paired cell by cell, and what got worse."""

__all__ = ["baseline", "comparability", "comparison", "formats", "pairing", "repeats", "side"]
