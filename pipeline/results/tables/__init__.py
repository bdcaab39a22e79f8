"""Parquet files of a run: their columns, reading, writing, merging, and finding run folders."""

__all__ = ["parquet", "released", "renames", "run_folder", "schemas", "words"]
