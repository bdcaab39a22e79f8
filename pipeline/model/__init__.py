"""Types that every package uses: verdicts, names, errors, settings, the registry of plug-ins.

Imports the standard library only; opens no file and starts no process.
"""

__all__ = ["errors", "names", "outcome", "registry", "settings", "verdicts"]
