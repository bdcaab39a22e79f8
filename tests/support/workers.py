"""Jobs for workers, scripts that replace workers, and checks whether a process is alive."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.outside import Outside
from pipeline.runs.protocol import FileRef, Job
from pipeline.vocab.files.source import cache_dir
from support.command import ROOT


def job(file: Path, **changes: Any) -> Job:
    """A job that audits one vocabulary with one builder."""
    plain: dict[str, Any] = {
        "model": "tiny",
        "tokenizer": "faulty",
        "weights": None,
        "tokens": FileRef(os.fspath(file), "0" * 64),
        "prefix_scheme": "auto",
        "seed": 0,
        "cache": os.fspath(cache_dir()),
        "builders": ("fixed",),
        "suites": (),
        "stages": ("audit",),
        "device": "cpu",
        "n_seq": 1,
        "n_threads": 1,
        "on_error": "drop",
        "max_tokens": None,
        "oracle": "off",
        "oracle_budget": 0.0,
        "walks": 0,
        "walks_suite": os.fspath(ROOT / "datasets" / "walks.yaml"),
        "strings_suite": None,
        "audit_seed": 0,
        "engines": (),
        "engines_suite": os.fspath(ROOT / "datasets" / "engines.yaml"),
        "outside": Outside(),
        "references": (),
    }
    known = {name: value for name, value in plain.items() if name in Job.__dataclass_fields__}
    return Job(**known | changes)


def stub(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> Path:
    """Replace the worker by a shell script, which writes its process id to the returned file."""
    pid, file = folder / "pid", folder / "worker.sh"
    file.write_text(f'#!/bin/sh\necho $$ > "{pid}"\n{script}\n', "utf-8")
    file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(file))
    return pid


def alive(pid: str) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def soon_dead(pids: list[str]) -> bool:
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))
