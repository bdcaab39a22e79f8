"""The native process: it runs one job, stage by stage, and sends rows as they are made.

Started as `runs.worker`; imported by nobody.
"""

__all__ = []
