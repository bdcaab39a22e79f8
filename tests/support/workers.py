"""Jobs for workers, scripts that replace workers, and checks whether a process is alive."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.audit.settings import AuditSettings
from pipeline.generation.settings import EngineSettings
from pipeline.runs.protocol import FileRef, Job, Plan
from pipeline.runs.settings import RuntimeSettings
from pipeline.vocab.files.source import cache_dir
from support.command import ROOT

_PLAN = set(Plan.__dataclass_fields__)


def job(file: Path, **changes: Any) -> Job:
    """A job that audits one vocabulary with one builder; `changes` are its fields or its plan's."""
    planned: dict[str, Any] = {"builders": ("fixed",), "stages": ("audit",)}
    planned |= {name: value for name, value in changes.items() if name in _PLAN}
    plain: dict[str, Any] = {
        "model": "tiny",
        "tokenizer": "faulty",
        "tokens": FileRef(os.fspath(file), "0" * 64),
        "cache": os.fspath(cache_dir()),
        "runtime": RuntimeSettings(device="cpu", n_seq=1, n_threads=1),
        "engine": EngineSettings(oracle="off", oracle_budget=0.0, case_limit=0.0),
        "audit": audit(),
    }
    others = {name: value for name, value in changes.items() if name not in _PLAN}
    return Job(plan=Plan(**planned), **plain | others)


def audit(**changes: Any) -> AuditSettings:
    """An audit that walks nothing."""
    plain: dict[str, Any] = {
        "walks": 0,
        "walks_suite": os.fspath(ROOT / "datasets" / "walks.yaml"),
        "strings_suite": None,
        "engines_suite": os.fspath(ROOT / "datasets" / "engines.yaml"),
    }
    return AuditSettings(**plain | changes)


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
