"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.system import files


def test_a_text_replaces_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    files.write_text(file, "é\n")
    files.write_text(file, (line for line in ("a\n", "b\n")))
    assert file.read_text("utf-8") == "a\nb\n"
    assert list(tmp_path.iterdir()) == [file]


def test_what_fails_on_the_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old", "utf-8")

    def half() -> None:
        with files.replacing(file) as temporary:
            temporary.write_text("ne", "utf-8")
            raise ValueError

    with pytest.raises(ValueError):
        half()
    assert file.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_two_writers_of_one_file_have_names_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    with files.replacing(file) as one, files.replacing(file) as other:
        assert one != other
        one.write_text("one", "utf-8")
        other.write_text("other", "utf-8")
    assert file.read_text("utf-8") == "one"


def test_a_folder_that_is_not_there_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        files.write_text(tmp_path / "none" / "a.txt", "")
