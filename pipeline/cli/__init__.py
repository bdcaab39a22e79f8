"""The commands. The only package that imports Hydra or OmegaConf.

`__main__` imports the one command that is asked for.
"""

__all__ = ["collect", "compare", "console", "help", "report", "run"]
