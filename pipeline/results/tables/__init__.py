"""Parquet files of a run: their columns, reading, writing and merging, and where runs lie."""

__all__ = ["parquet", "released", "renames", "run_folder", "schemas", "words"]
