"""The standing of every builder: what a run's tables prove, in closed words, reasons and bounds.

Every judgement that a person reads comes from here. Nothing is measured here: the functions are
pure and see tables only.
"""

__all__ = ["missing", "standings", "stored", "words"]
