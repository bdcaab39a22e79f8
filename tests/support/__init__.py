"""Shared by tests: vocabularies, the command, fakes, broken builders, servers."""
