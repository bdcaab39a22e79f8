"""Cost of constrained decoding: raw decoding, ours, one case at a time, a llama.cpp server.

    python scripts/bench_decode.py [--repeats N] [--cases N] [--device cpu|gpu] [--no-server]
        [--no-growth] [--json]

It uses SmolLM2, one thread for llama.cpp, and the cases of the three suites. Every side does the
same work, interleaved in one process (the server has its own). Times are CPU seconds, so that a
busy machine affects the ratios little. Each speed is the median of several rounds; each ratio is
the median of the ratios of the rounds.

raw          the same batches as in the constrained run, with argmax of the logits, without masks
ours         constrained, masks in another thread; without and with fast-forward
sequential   constrained, one case at a time, with its whole prompt each time
server       llama.cpp's server from the xllamacpp wheel, with the same number of parallel requests

`two cores` counts the time of the decoding thread plus its waiting time for masks. `one core`
counts the time of all threads. `growth` is the exponent of time over number of cells, measured on
a tiny model.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from pipeline.engines import builders
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import Material, TokenTable
from pipeline.generation.cell import Cell
from pipeline.generation.request import prompt_ids
from pipeline.generation.scheduler import Scheduler
from pipeline.generation.servers.http import Address, exchange
from pipeline.generation.servers.launch import free_port
from pipeline.generation.servers.llama_cpp import Server
from pipeline.generation.timings import Part, Stopwatch
from pipeline.grammars import suites
from pipeline.grammars.case import Case
from pipeline.native import llama
from pipeline.native.context import Context
from pipeline.vocab import vocabulary
from pipeline.vocab.files import forge, resolve
from pipeline.vocab.files.source import Source, cache_dir
from pipeline.vocab.vocabulary import Vocabulary

_ROOT = Path(__file__).parent.parent
_SUITES = ("forced_literal", "enum", "half_free")
_N_CTX = 256
_GROWTH = (24, 240, 2400)


@dataclass(frozen=True)
class Cost:
    """Time of one side, in seconds."""

    all: float
    """CPU time of all threads."""
    lead: float
    """CPU time of the decoding thread, plus its waiting time for masks."""
    n_tokens: int


@dataclass(frozen=True)
class Bench:
    """A model and the objects that its cells need."""

    model: llama.Model
    vocabulary: Vocabulary
    engine: Llguidance
    table: TokenTable
    gpu: bool

    def cells(self, cases: Sequence[Case]) -> Iterator[Cell]:
        """The cells of some cases; compiling their grammars is part of the measured work."""
        for i, case in enumerate(cases):
            kind, text = case.grammar.engine_text()
            yield Cell(
                key=f"{i}",
                prompt=self.prompt(case),
                compile=partial(self.engine.compile, self.table, kind, text),
                max_tokens=case.max_tokens,
                end_ids=self.vocabulary.end_ids,
                drop_on_error=True,
                n_vocab=self.vocabulary.n_tokens,
            )

    def prompt(self, case: Case) -> tuple[int, ...]:
        """The ids of a case's prompt."""
        return prompt_ids(self.model.vocab, self.vocabulary, None, case.prompt)

    def sorted(self, cases: Sequence[Case]) -> list[Case]:
        """The cases with similar prompts next to each other, as in the target."""
        return sorted(cases, key=self.prompt)

    def context(self, n_seq: int) -> Context:
        """A context for `n_seq` cells."""
        return Context(
            self.model,
            n_seq=max(n_seq, 2),
            n_ctx_seq=_N_CTX,
            n_batch=512,
            n_threads=1,
            flash_attention=self.gpu,
        )


class Recorder:
    """A context that records the calls it gets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.n_batch = context.n_batch
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self.calls.append((name, given))
            return getattr(self._context, name)(*given)

        return call


@contextmanager
def opened(file: Path, builder: str, *, gpu: bool = False) -> Generator[Bench]:
    """Open a model with its weights."""
    with (
        closing(llama.Model(file, vocab_only=False, n_gpu_layers=-1 if gpu else 0)) as model,
        closing(Llguidance()) as engine,
    ):
        read = vocabulary.read(model)
        material = Material(read, model.vocab, lambda _: True)
        table = builders.get(builder).build(material)
        engine.tokenizer(table)
        yield Bench(model, read, engine, table, gpu)


def cost_of(work: Callable[[Stopwatch], int]) -> Cost:
    """The cost of `work`, which returns its number of tokens."""
    stopwatch = Stopwatch()
    every, lead = time.process_time(), time.thread_time()
    n_tokens = work(stopwatch)
    waited = stopwatch.seconds[Part.MASK]
    return Cost(time.process_time() - every, time.thread_time() - lead + waited, n_tokens)


def ours(
    bench: Bench, cases: Sequence[Case], context: Any, n_seq: int, *, fast: bool
) -> Callable[[Stopwatch], int]:
    """All cases in batches."""

    def work(stopwatch: Stopwatch) -> int:
        scheduler = Scheduler(context, n_seq=n_seq, fast_forward=fast, stopwatch=stopwatch)
        return sum(_finished(cell) for cell in scheduler.run(bench.cells(cases)))

    return work


def sequential(bench: Bench, cases: Sequence[Case], context: Context) -> Callable[[Stopwatch], int]:
    """One case at a time; the context is cleared after each."""

    def work(stopwatch: Stopwatch) -> int:
        return sum(ours(bench, [case], context, 1, fast=False)(stopwatch) for case in cases)

    return work


def _finished(cell: Cell) -> int:
    cell.close()
    return len(cell.steps)


def raw(calls: Sequence[tuple[str, tuple[Any, ...]]], context: Context, n_tokens: int) -> Any:
    """Decode the recorded batches again."""

    def work(_: Stopwatch) -> int:
        for name, given in calls:
            answer = getattr(context, name)(*given)
            if name == "decode" and len(answer):
                np.asarray(answer).argmax(axis=1)
        return n_tokens

    return work


def median_cost(costs: Sequence[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(
        statistics.median(cost.all for cost in costs),
        statistics.median(cost.lead for cost in costs),
        costs[0].n_tokens,
    )


def ratio(over: Sequence[Cost], under: Sequence[Cost], *, lead: bool = False) -> float:
    """The median over the rounds of the ratio of times, `over` / `under`."""
    return statistics.median(
        a.lead / b.lead if lead else a.all / b.all for a, b in zip(over, under, strict=True)
    )


def in_turn(works: dict[str, Callable[[Stopwatch], int]], repeats: int) -> dict[str, list[Cost]]:
    """Run each side once per round, under the same load; prints the costs and returns them."""
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            costs[name].append(cost_of(work))
    for name, found in costs.items():
        _say(name, median_cost(found))
    return costs


def against_raw(bench: Bench, cases: list[Case], n_seq: int, repeats: int) -> dict[str, list[Cost]]:
    """Raw decoding and ours with `n_seq` sequences, without and with fast-forward."""
    with closing(bench.context(n_seq)) as context:
        recorder = Recorder(context)
        n_tokens = ours(bench, cases, recorder, n_seq, fast=False)(Stopwatch())
        return in_turn(
            {
                f"raw, {n_seq} wide": raw(recorder.calls, context, n_tokens),
                f"ours, {n_seq} wide": ours(bench, cases, context, n_seq, fast=False),
                f"ours, {n_seq} wide, fast-forward": ours(bench, cases, context, n_seq, fast=True),
            },
            repeats,
        )


# --- a real server --------------------------------------------------------------------------------


@contextmanager
def served(file: Path, slots: int) -> Generator[tuple[Address, int]]:
    """(address, process id) of llama.cpp's server from the wheel."""
    port = free_port()
    program = _ROOT / "pipeline" / "generation" / "servers" / "xllamacpp.py"
    command = [sys.executable, "-P", str(program), "--model", str(file)]
    command += ["--port", f"{port}", "--slots", f"{slots}", "--context", f"{slots * _N_CTX}"]
    process = subprocess.Popen(
        [*command, "--threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = Address("127.0.0.1", port)
        while exchange(address, "GET", "/health", timeout=5).status != 200:
            if process.poll() is not None:
                raise SystemExit(
                    "the server does not start; install it with: pip install -e '.[server]'"
                )
            time.sleep(0.1)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def ask(bench: Bench, cases: Sequence[Case], address: Address, n_at_once: int) -> None:
    """Send all cases over HTTP; the server may cache prompts."""

    def one(case: Case) -> None:
        body = Server().body(case, bench.prompt(case), case.max_tokens) | {"cache_prompt": True}
        reply = exchange(address, "POST", "/completion", json.dumps(body).encode(), timeout=300)
        if reply.status != 200:
            raise SystemExit(f"the server returned {reply.status}: {reply.body[:200]!r}")

    with ThreadPoolExecutor(n_at_once) as pool:
        list(pool.map(one, cases))


def server_cost(bench: Bench, file: Path, cases: Sequence[Case], n: int, repeats: int) -> float:
    """CPU seconds of the server process, the median of several rounds."""
    costs: list[float] = []
    with served(file, n) as (address, process):
        ask(bench, cases[:n], address, n)
        for _ in range(repeats):
            begun = _processor_time(process)
            ask(bench, cases, address, n)
            costs.append(_processor_time(process) - begun)
    return statistics.median(costs)


def _processor_time(process: int) -> float:
    """CPU seconds of all threads of a process (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- growth ---------------------------------------------------------------------------------------


def growth() -> tuple[float, list[tuple[int, float]]]:
    """(exponent, [(cells, seconds) of each size]) on a tiny model."""
    fields = yaml.safe_load((_ROOT / "conf" / "tokenizer" / "mistral_v1.yaml").read_text("utf-8"))
    source = Source(**fields | {"members": tuple(fields["members"])})
    tokens = forge.vocabulary_of(resolve.resolve(source, progress=False).path, cache_dir())
    points: list[tuple[int, float]] = []
    cases = mixed()
    with (
        opened(forge.forge_model(tokens, 0, cache_dir()), "fixed") as bench,
        closing(bench.context(32)) as context,
    ):
        ours(bench, cases[:24], context, 32, fast=True)(Stopwatch())
        for n in _GROWTH:
            some = bench.sorted([cases[i % len(cases)] for i in range(n)])
            work = ours(bench, some, context, 32, fast=True)
            points.append((n, cost_of(work).all))
    xs = [math.log(n) for n, _ in points]
    ys = [math.log(seconds) for _, seconds in points]
    return statistics.linear_regression(xs, ys).slope, points


# --- all together ---------------------------------------------------------------------------------


def mixed() -> list[Case]:
    """The cases of the suites interleaved, so that every prefix of the list is mixed."""
    loaded = [suites.load_named(name, _ROOT / "datasets").cases for name in _SUITES]
    longest = max(map(len, loaded))
    return [cases[i] for i in range(longest) for cases in loaded if i < len(cases)]


def _model() -> Path:
    fields = yaml.safe_load((_ROOT / "conf" / "model" / "smollm2.yaml").read_text("utf-8"))["model"]
    source = Source(**fields | {"members": tuple(fields["members"])})
    return resolve.resolve(source, role="model", progress=False).path


def measure(asked: argparse.Namespace) -> dict[str, float]:
    """All figures; prints them while measuring."""
    found: dict[str, float] = {}
    eight: list[list[Cost]] = []
    file, cases = _model(), mixed()[: asked.cases]
    with opened(file, "fixed", gpu=asked.device == "gpu") as bench:
        cases = bench.sorted(cases)
        for n_seq in (8, 32):
            sides = list(against_raw(bench, cases, n_seq, asked.repeats).values())
            bare, plain, _ = sides
            found[f"constrained_over_raw_{n_seq}"] = ratio(bare, plain, lead=True)
            found[f"constrained_over_raw_{n_seq}_one_core"] = ratio(bare, plain)
            eight = eight or sides
        thirty_two = cases[:32]
        with closing(bench.context(32)) as context:
            alone, plain, fast = in_turn(
                {
                    "sequential": sequential(bench, thirty_two, context),
                    "ours, 32 cases": ours(bench, thirty_two, context, 32, fast=False),
                    "ours, 32 cases, fast-forward": ours(bench, thirty_two, context, 32, fast=True),
                },
                asked.repeats,
            ).values()
            found["over_sequential"] = ratio(alone, fast)
            found["over_sequential_plain"] = ratio(alone, plain)
            literals = [case for case in cases if case.suite == "forced_literal"]
            plain, fast = in_turn(
                {
                    "literals": ours(bench, literals, context, 8, fast=False),
                    "literals, fast-forward": ours(bench, literals, context, 8, fast=True),
                },
                asked.repeats,
            ).values()
            found["fast_forward"] = ratio(plain, fast)
        if not asked.no_server:
            seconds = server_cost(bench, file, cases, 8, asked.repeats)
            plain, fast = map(median_cost, eight[1:])
            _say("server, 8 slots", Cost(seconds, seconds, plain.n_tokens))
            found["over_server"] = seconds / fast.all
            found["over_server_plain"] = seconds / plain.all
    if not asked.no_growth:
        found["growth_exponent"], points = growth()
        print("growth: " + ", ".join(f"{n} cells {seconds:.2f} s" for n, seconds in points))
    return found


def _say(name: str, cost: Cost) -> None:
    print(
        f"{name:32} {cost.n_tokens:6} tokens {cost.n_tokens / cost.all:8.1f} a second (one core)"
        f" {cost.n_tokens / cost.lead:8.1f} (two cores)",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument(
        "--cases", type=int, default=40, help="cases, mixed from the three suites (40)"
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="(cpu)")
    parser.add_argument("--no-server", action="store_true", help="without a real server")
    parser.add_argument("--no-growth", action="store_true", help="without the growth of time")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    asked = parser.parse_args()
    llama.start()
    found = {name: round(value, 3) for name, value in measure(asked).items()}
    for name, value in found.items():
        print(f"{name:34} {value:7.3f}")
    if asked.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
