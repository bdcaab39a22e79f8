"""The native process: it runs one job, stage by stage, and sends rows as they are made.

It is started as `runs.worker`. No other package imports it.
"""

__all__ = []
