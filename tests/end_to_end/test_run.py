"""The main job, end to end, through the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipeline.results.tables import schemas
from pipeline.vocab.files import forge, source
from support.command import GENERATE, QUICK, ROOT, Finished, pipeline
from support.hub_server import serve_hub
from support.vocabularies import vocabulary_file

SHORT = ("builder=[exact,unfixed]", "stages=[generate]", "grammar.limit=4")
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))


def score(cells: pl.DataFrame, **where: str) -> tuple[int, int]:
    chosen = cells.filter(**where)
    return chosen.filter(verdict="ok").height, chosen.height


def test_unfixed_0_of_3_and_fixed_every_case(default_run: Finished) -> None:
    assert default_run.code == 0, default_run.err
    cells = default_run.table("cells")
    assert score(cells, builder="unfixed", case="founding") == (0, 3)
    assert score(cells, builder="fixed", case="founding") == (3, 3)
    right, total = score(cells, builder="fixed")
    assert right == total
    assert total >= 24
    assert cells.filter(builder="fixed")["engine_error"].null_count() == total


def test_the_console_ends_with_the_table_and_the_files(default_run: Finished) -> None:
    line = next(line for line in default_run.out.splitlines() if "mistral_v1/SPM" in line)
    assert "0/3" in line
    assert "3/3" in line
    assert line.rstrip().endswith("greedy")
    assert default_run.out.splitlines()[-2].startswith("Results: ")
    assert "cells.parquet" in default_run.out.splitlines()[-1]


def test_both_failure_modes_of_the_founding_document_are_seen(default_run: Finished) -> None:
    """One failure drops the constraint and continues. The other is silent: a clean end, no error,
    wrong bytes."""
    founding = default_run.table("cells").filter(builder="unfixed", case="founding")
    verdicts = dict(founding.select("suite", "verdict").iter_rows())
    assert verdicts["forced_literal"] == "unenforced"
    assert verdicts["enum"] == "silent_corruption"
    silent = founding.filter(suite="enum").row(0, named=True)
    assert silent["engine_error"] is None
    assert silent["ended"] == "stop_id"
    assert silent["output"].startswith(b' {"')
    lost = founding.filter(suite="forced_literal").row(0, named=True)
    assert lost["output"].startswith(b" The")
    assert lost["lost_at_step"] >= 1
    assert lost["engine_error"]
    assert lost["cause"] == "tokenize"


def test_steps_are_the_transcript_of_the_output(default_run: Finished) -> None:
    cells, steps = default_run.table("cells"), default_run.table("steps")
    joined = {
        key: b"".join(group.sort("step")["rendered"].to_list())
        for (key,), group in steps.group_by("cell_key")
    }
    for row in cells.iter_rows(named=True):
        assert joined[row["cell_key"]] == row["output"]
        assert steps.filter(cell_key=row["cell_key"]).height == row["n_tokens"]
    assert {"chosen", "forced", "unconstrained"} >= set(steps["origin"])
    forced = steps.filter(builder="fixed", origin="forced")
    assert forced.height == 0, "greedy forces nothing"


def test_same_command_twice_gives_the_same_tables(default_run: Finished, tmp_path: Path) -> None:
    again = pipeline(tmp_path, "run")
    for table in schemas.SCHEMAS:
        assert_frame_equal(default_run.table(table), again.table(table))
    first, second = (
        json.loads((run.folder / "manifest.json").read_text()) for run in (default_run, again)
    )
    first.pop("volatile")
    second.pop("volatile")
    assert first == second


def test_audit_writes_the_same_tables_without_generation(
    default_run: Finished, tmp_path: Path
) -> None:
    audit = pipeline(tmp_path, "audit", *QUICK)
    assert audit.code == 0, audit.err
    for table in ("tokenizers", "tokens", "masks"):
        assert_frame_equal(default_run.table(table), audit.table(table))
    for table in ("cells", "steps"):
        assert audit.table(table).height == 0


def test_audit_of_any_gguf_says_whether_it_is_safe(tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.symlink_to(vocabulary_file("llama_spm"))
    audit = pipeline(tmp_path, "audit", "tokenizer=path", f"tokenizer.path={file}", *QUICK)
    assert audit.code == 0, audit.err
    unfixed = next(line for line in audit.out.splitlines() if " unfixed  1" in line)
    assert "16410/32000" in unfixed
    assert "6136" in unfixed
    assert "unfixed on mine: UNSAFE" in audit.out
    assert "fixed on mine: SAFE" in audit.out
    assert audit.table("tokenizers")["tokenizer"].unique().to_list() == ["mine"]


def test_the_two_halves_tell_the_defects_apart(tmp_path: Path) -> None:
    done = pipeline(tmp_path, "run", "experiment=defects", "tokenizer=llama_spm", *GENERATE)
    assert done.code == 0, done.err
    cells = done.table("cells")
    causes = {
        builder: set(group.filter(pl.col("verdict") != "ok")["cause"])
        for (builder,), group in cells.group_by("builder")
    }
    assert causes["fixed"] == set()
    assert causes["tokenize_fixed"] == {"bytes"}, "only defect A is left"
    assert causes["bytes_fixed"] == {"tokenize"}, "only defect B is left"
    assert score(cells, builder="attr_special", case="founding") == (0, 3)


@pytest.mark.slow
def test_multirun_over_the_field(tmp_path: Path) -> None:
    names = ["llama_spm", "llama_bpe", "gemma4", "bert_bge", "phi3", "qwen35", "mistral_v3"]
    done = pipeline(tmp_path, "run", "-m", f"tokenizer={','.join(names)}", *GENERATE)
    assert done.code == 0, done.err
    cells = done.table("cells")
    assert set(cells["tokenizer"]) == set(names)
    for name, unfixed in [
        ("llama_spm", 0),
        ("phi3", 0),
        ("mistral_v3", 0),
        ("llama_bpe", 3),
        ("gemma4", 3),
        ("qwen35", 3),
    ]:
        assert score(cells, tokenizer=name, builder="unfixed", case="founding") == (unfixed, 3)
        assert score(cells, tokenizer=name, builder="fixed", case="founding") == (3, 3)
    left = cells.filter(pl.col("verdict") != "ok", builder="fixed")
    # U+2581 as real text comes back from Gemma 4's tokenizer as a space (field case U-11).
    others = left.filter(pl.col("tokenizer") != "bert_bge").select("tokenizer", "case").rows()
    assert others == [("gemma4", "meta_symbol")]
    # An uncased WordPiece vocabulary has no capital letters and no end id.
    bert = left.filter(tokenizer="bert_bge")
    assert set(bert["verdict"]) == {"impossible", "no_stop"}
    assert set(bert["cause"]) == {"vocabulary", "special"}
    capitals = bert.filter(case="founding", suite="forced_literal").row(0, named=True)
    assert (capitals["verdict"], capitals["cause"]) == ("impossible", "vocabulary")


def test_real_weights_are_right_under_every_builder(tmp_path: Path) -> None:
    """SmolLM2's tokenizer is byte-level BPE and does not clean up spaces."""
    done = pipeline(tmp_path, "run", "model=smollm2", "experiment=defects", *GENERATE)
    assert done.code == 0, done.err
    cells = done.table("cells")
    for builder in cells["builder"].unique():
        assert score(cells, builder=builder, case="founding") == (3, 3)
        right, total = score(cells, builder=builder)
        assert right == total
    assert set(cells["tokenizer"]) == {"smollm2"}
    free = cells.filter(suite="half_free", case="founding")["output"]
    assert all(text.decode("ascii").isprintable() for text in free)


def test_tinyllama_from_a_hub(tmp_path: Path) -> None:
    """`python -m pipeline run model=tinyllama` with a local server that imitates the hub."""
    weights = forge.forge_model(vocabulary_file("llama_spm"), 0, source.cache_dir())
    repository = "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF"
    file = "tinyllama-1.1b-chat-v1.0.Q8_0.gguf"
    with serve_hub({f"{repository}/{file}": weights}) as url:
        env = {"HF_ENDPOINT": url, "BYTE_EXACT_CACHE": str(tmp_path / "cache")}
        done = pipeline(tmp_path, "run", "model=tinyllama", *QUICK, env=env)
    assert done.code == 0, done.err
    cells = done.table("cells")
    assert set(cells["model"]) == {"tinyllama"}
    assert set(cells["vocab_type"]) == {"SPM"}
    assert score(cells, builder="unfixed", case="founding") == (0, 3)
    assert score(cells, builder="fixed", case="founding") == (3, 3)


def test_a_safe_runtime_stops_where_llama_cpp_drops(default_run: Finished, tmp_path: Path) -> None:
    done = pipeline(tmp_path, "run", "engine.on_error=stop", "builder=unfixed", *GENERATE)
    stopped = done.table("cells")
    dropped = default_run.table("cells").filter(builder="unfixed")
    assert "unenforced" not in set(stopped["verdict"])
    both = dropped.join(stopped, on="cell_key", suffix="_stop")
    lost = both.filter(verdict="unenforced")
    assert lost.height
    assert set(lost["verdict_stop"]) == {"stopped"}
    assert (both["cell_hash"] != both["cell_hash_stop"]).all(), "settings decide the hash"


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes(experiment: str) -> None:
    done = pipeline(Path("unused"), "run", f"experiment={experiment}", "--cfg", "job")
    assert done.code == 0, done.err
    assert f"name: {experiment}" not in done.out


def test_settings_shown_of_a_multirun_are_refused_in_words() -> None:
    """Hydra itself would print a traceback."""
    done = pipeline(Path("unused"), "run", "-m", "tokenizer=phi3,qwen2", "--cfg", "job")
    assert done.code == 2
    assert done.err.strip() == "error: --cfg shows the settings of a single job: remove -m."


def test_debug_quick_is_small(tmp_path: Path) -> None:
    done = pipeline(tmp_path, "run", "debug=quick")
    assert done.code == 0, done.err
    assert done.table("cells").height == 6


def test_fast_forward_and_the_number_of_places_change_no_row(tmp_path: Path) -> None:
    """`exact` forces tokens on SentencePiece; `unfixed` continues after it loses its constraint."""
    told = {
        name: pipeline(tmp_path, "run", *SHORT, f"run.name={name}", *more)
        for name, more in (
            ("fast", ["engine.fast_forward=true"]),
            ("slow", ["engine.fast_forward=false"]),
            ("alone", ["engine.fast_forward=true", "runtime.n_seq=1"]),
        )
    }
    assert all(run.code == 0 for run in told.values()), told["fast"].err
    fast = told["fast"]
    assert fast.table("states").height
    assert fast.table("steps").filter(origin="forced").height
    for name in ("slow", "alone"):
        for table in ("cells", "steps", "states"):
            assert_frame_equal(fast.table(table), told[name].table(table))
    [timing] = json.loads((fast.folder / "manifest.json").read_text())["volatile"]["timings"]
    assert timing["tokens"]["forced"] == fast.table("steps").filter(origin="forced").height
    assert set(timing["seconds"]) == {"decode", "mask_wait", "select", "judge", "python"}
    assert "Speed of generation" in fast.out


def test_repeats_are_sampled_apart_and_their_rates_shown(tmp_path: Path) -> None:
    sampled = ("sampling.temperature=1.5", "repeats=3", "engine.oracle=first", *SHORT)
    once = pipeline(tmp_path, "run", *sampled, "run.name=once")
    again = pipeline(tmp_path, "run", *sampled, "run.name=again", "runtime.n_seq=5")
    assert once.code == again.code == 0, once.err
    cells = once.table("cells")
    assert_frame_equal(cells, again.table("cells"))
    assert cells.height == 3 * 2 * 12
    assert sorted(cells["repeat"].unique()) == [0, 1, 2]
    assert cells["cell_hash"].n_unique() == cells.height
    assert once.table("states").height >= cells.filter(builder="exact").height
    texts = cells.filter(suite="half_free", builder="exact").group_by("case")
    assert cast(int, texts.agg(pl.col("output").n_unique())["output"].max()) > 1
    assert "Rates of right cells over repeats" in once.out
    steps = once.table("steps").group_by("cell_key", "repeat").agg(pl.len().alias("n_tokens"))
    joined = cells.join(steps, on=["cell_key", "repeat"], suffix="_steps")
    assert joined.height == cells.filter(pl.col("n_tokens") > 0).height
    assert (joined["n_tokens"] == joined["n_tokens_steps"]).all()
