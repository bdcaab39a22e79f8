"""What the whole program speaks of: verdicts, names, errors, and the registry of plug-ins.

Imports the standard library only; opens no file and starts no process.
"""

__all__ = ["errors", "names", "outcome", "registry", "settings", "verdicts"]
