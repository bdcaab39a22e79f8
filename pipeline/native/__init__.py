"""The only files with native handles: llama.cpp, and llguidance's C interface.

Only worker processes load them. Imports `model` and `system`.
"""

__all__ = ["context", "grammar_sampler", "llama", "llguidance"]
