"""Servers that generate: reached or started, asked, watched and always stopped."""

__all__ = ["answer", "client", "http", "llama_cpp", "openai", "provide"]
