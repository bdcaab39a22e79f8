"""The parent's side of a run: it turns settings into jobs, supervises workers, writes journals and
merges tables."""

__all__ = ["collect", "command", "execute", "journal", "resume", "settings"]
