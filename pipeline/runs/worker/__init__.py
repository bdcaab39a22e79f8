"""The native process: one job, stage by stage, its rows sent as they come.

Started as `runs.worker`; imported by nobody.
"""

__all__ = []
