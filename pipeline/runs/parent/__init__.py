"""The parent's side of a run: settings to jobs, workers supervised, journals, tables at the end."""

__all__ = ["collect", "command", "execute", "journal", "resume", "settings"]
