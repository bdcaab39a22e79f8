"""Servers that generate: connect to one or start it, send requests, watch it and stop it."""

__all__ = ["answer", "client", "http", "llama_cpp", "openai", "provide"]
