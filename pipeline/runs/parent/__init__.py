"""The parent's side of a run: it makes jobs of settings, supervises workers, keeps journals and
merges tables."""

__all__ = ["collect", "command", "execute", "journal", "resume", "settings"]
