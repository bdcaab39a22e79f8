"""The commands. The only package that imports Hydra or OmegaConf.

`__main__` imports only the module of the given command.
"""

__all__ = ["collect", "compare", "console", "help", "report", "run"]
