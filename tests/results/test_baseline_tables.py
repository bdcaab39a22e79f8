"""A baseline knows tables: any change of a token, a standing, a string or a replay is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.__main__ import main
from pipeline.results.compare import kept
from pipeline.results.tables import parquet
from support.compare_runs import made
from support.report_runs import Row
from support.standing_runs import WHO, audited, row, state, table_row
from support.standing_runs import given as string_row

Out = pytest.CaptureFixture[str]


def token(number: int, **values: Any) -> Row:
    known = {"attribute": "NORMAL", "true": b"qu", "claimed": b"uq", "damage": "other"}
    return row("tokens", **(WHO | known | {"marked_special": False, "token": number} | values))


def run_of(folder: Path, rows: dict[str, list[Row]]) -> Path:
    from support import report_runs

    return report_runs.made(folder, rows)


def ran(capsys: Out, command: str, *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([*command.split(), *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def saved(capsys: Out, run: Path, file: Path, *more: str) -> tuple[int, str, str]:
    return ran(capsys, "baseline save", f"run={run}", f"file={file}", *more)


def gated(capsys: Out, file: Path, run: Path, *more: str) -> tuple[int, str, str]:
    where = ("before.run=baseline", f"baseline={file}", f"after.run={run}")
    return ran(capsys, "compare", *where, *more)


SWAPPED = audited(n_wrong=1) | {"tokens": [token(364)]}


def test_one_swapped_token_fails_the_gate_by_its_name_in_every_format(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with two bytes of one token swapped passed the gate, and was saved."""
    file, out = tmp_path / "baseline.txt", tmp_path / "out"
    good, bad = run_of(tmp_path / "good", audited()), run_of(tmp_path / "bad", SWAPPED)
    assert saved(capsys, good, file)[0] == 0
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    code, said, _ = gated(capsys, file, bad, f"out={out}")
    assert code == 1
    named = "364 'qu' (right → claimed 'uq')"
    assert f"tokens t b: claimed worse: {named}" in said
    assert "standings t b" in said and "safe → unsafe" in said
    assert "::error title=table worse%3A tokens::" in said
    for written in ("comparison.md", "comparison.xml"):
        text = (out / written).read_text()
        assert "364" in text and "uq" in text, written
    record = json.loads((out / "comparison.json").read_text())
    assert record["exit_code"] == 1
    assert any(named in example for one in record["tables"] for example in one["examples"])
    code, _, err = saved(capsys, bad, file)
    assert code == 1
    assert "2 rows of tables" in err


def test_an_unsafe_control_may_be_saved_and_is_no_regression(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    bad = run_of(tmp_path / "bad", SWAPPED)
    assert saved(capsys, bad, file)[0] == 0
    code, said, _ = gated(capsys, file, bad)
    assert (code, "PASS: nothing changed" in said) == (0, True)
    good = run_of(tmp_path / "good", audited())
    code, said, _ = gated(capsys, file, good)
    assert code == 0, said
    assert "unsafe → safe" in said


def test_a_standing_that_gets_worse_fails_the_gate_alone(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    rows = audited()
    assert saved(capsys, run_of(tmp_path / "good", rows), file)[0] == 0
    rows["states"] = [*rows["states"], state(2, verdict="unsound", ids=[3])]
    code, said, _ = gated(capsys, file, run_of(tmp_path / "bad", rows))
    assert code == 1
    assert "safe → unsafe" in said
    both = [f"before.run={tmp_path / 'good'}", f"after.run={tmp_path / 'bad'}"]
    code, said, _ = ran(capsys, "compare", *both)
    assert code == 1
    assert "safe → unsafe" in said


def test_a_changed_table_without_a_changed_token_is_said(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    hashes = {"table_hash": "a" * 64, "vocab_hash": "c" * 64}
    assert saved(capsys, run_of(tmp_path / "a", audited(**hashes)), file)[0] == 0
    other = audited(**(hashes | {"table_hash": "b" * 64}))
    code, said, _ = gated(capsys, file, run_of(tmp_path / "b", other))
    assert code == 0
    assert f"tokenizers t b: table_hash changed: {'a' * 16} → {'b' * 16}" in said
    other = audited(**(hashes | {"vocab_hash": "d" * 64})) | {"tokens": [token(1)]}
    _, said, _ = gated(capsys, file, run_of(tmp_path / "d", other))
    assert "ids are not compared for t: the vocabularies differ" in said


def test_strings_that_go_wrong_or_right_are_named(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    wrong = {"verdict": "valid_refused", "cause": "builder"}
    rows = audited() | {"strings": [string_row(), string_row(string=b"b", **wrong)]}
    assert saved(capsys, run_of(tmp_path / "a", rows), file)[0] == 0
    rows["strings"] = [string_row(**wrong), string_row(string=b"b")]
    code, said, _ = gated(capsys, file, run_of(tmp_path / "b", rows))
    assert code == 1
    assert "strings t b words/61/greedy: verdict worse: - → valid_refused" in said
    assert "strings t b words/62/greedy: verdict better: valid_refused → -" in said


def test_a_known_failure_keeps_its_link_and_an_unexpected_pass_is_reported(
    tmp_path: Path, capsys: Out
) -> None:
    file, out = tmp_path / "baseline.txt", tmp_path / "out"
    bad = run_of(tmp_path / "bad", SWAPPED)
    assert saved(capsys, bad, file)[0] == 0
    url = "https://example.org/issues/7"
    lines = file.read_text().splitlines()
    marked = [
        f"{line}  # expected: {url}" if line.startswith("standing=") else line for line in lines
    ]
    file.write_text("\n".join(marked) + "\n")
    code, said, _ = gated(capsys, file, bad, f"out={out}")
    assert code == 0
    assert f"still failing: standing=unsafe  t/b/inprocess/ ({url})" in said
    assert f'<skipped message="{url}"/>' in (out / "comparison.xml").read_text()
    assert saved(capsys, bad, file)[0] == 0
    assert file.read_text().splitlines() == marked
    good = run_of(tmp_path / "good", audited())
    _, said, _ = gated(capsys, file, good, f"out={out}")
    assert f"unexpected pass: standing=unsafe  t/b/inprocess/ ({url})" in said
    assert "unexpected pass" in (out / "comparison.xml").read_text()
    assert "unexpected pass" in (out / "comparison.md").read_text()
    assert saved(capsys, good, file)[0] == 0
    assert "# expected" not in file.read_text()


def test_format_1_is_read_and_says_that_tables_are_not_compared(
    tmp_path: Path, capsys: Out
) -> None:
    file = tmp_path / "baseline.txt"
    run = made(tmp_path / "run", [{"case": "x"}])
    assert saved(capsys, run, file)[0] == 0
    kept_lines = [
        line
        for line in file.read_text().splitlines()
        if "=" not in line.split("  ")[0] and not line.startswith("# facts")
    ]
    first = kept_lines[0].replace("format 2", "format 1")
    file.write_text("\n".join([first, *kept_lines[1:]]) + "\n")
    code, said, _ = gated(capsys, file, run)
    assert code == 0
    assert "has format 1: tables are not compared" in said


@pytest.mark.parametrize(
    "more",
    [None, "standing=safe  too/few", "wrong=other  t/b/0  1*x", "nonsense=1  t/b"],
    ids=["cut", "names", "deltas", "kind"],
)
def test_a_damaged_line_is_an_error_with_its_place(
    tmp_path: Path, capsys: Out, more: str | None
) -> None:
    file = tmp_path / "baseline.txt"
    bad = run_of(tmp_path / "bad", SWAPPED)
    assert saved(capsys, bad, file)[0] == 0
    lines = file.read_text().splitlines()
    lines = lines[:-1] if more is None else [*lines, more]
    file.write_text("\n".join(lines) + "\n")
    code, _, err = gated(capsys, file, bad)
    assert code == 2
    assert "baseline.txt" in err


ids = st.sets(st.integers(0, 30_000), max_size=60)
names = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())


@given(
    wrong=st.dictionaries(st.sampled_from(["other", "emptied", "not_marked"]), ids, max_size=3),
    strings=st.sets(st.binary(max_size=6), max_size=5),
    tokenizer=names,
    builder=names,
)
def test_what_is_kept_is_read_back_and_every_change_is_seen(
    wrong: dict[str, set[int]], strings: set[bytes], tokenizer: str, builder: str
) -> None:
    who = {"tokenizer": tokenizer, "builder": builder}
    taken = set[int]()
    tokens: list[Row] = []
    for damage, some in wrong.items():
        tokens += [token(one, damage=damage, **who) for one in sorted(some - taken)]
        taken |= some
    bad = {"verdict": "valid_refused", "cause": "builder"}
    rows = {
        "tokens": tokens,
        "strings": [string_row(string=text, **bad, **who) for text in sorted(strings)],
        "tokenizers": [table_row(table_hash="a" * 64, vocab_hash="b" * 64, **who)],
    }
    first = kept.of({name: parquet.frame(name, some) for name, some in rows.items()})
    reader = kept.Reader()
    for word, key in kept.lines(first):
        assert "\n" not in key
        kind, _, value = word.partition("=")
        reader.add(kind, value, key)
    second = reader.kept()
    for kind, frame in first.rows.items():
        columns = kept.SCHEMAS[kind]
        assert second.rows[kind].sort(*columns).equals(frame.sort(*columns)), kind
    changed = dict(rows) | {"tokens": [*tokens, token(30_001, **who)]}
    third = kept.of({name: parquet.frame(name, some) for name, some in changed.items()})
    assert [*kept.lines(third)] != [*kept.lines(first)]
