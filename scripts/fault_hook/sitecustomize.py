"""Cause a fault at a chosen moment of a chosen process, for `fault_injection.py`.

Python imports a module of this name at its start if it finds one. The moment is the n-th Python
function call of the main thread after the first call of a given function, so that a seed always
gives the same point. A token file makes sure that there is only one fault.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any


def _inject(kind: str) -> None:
    match kind:
        case "exit":
            os._exit(3)
        case "hang":
            while True:
                time.sleep(60)
        case "memory":  # the next large allocation fails
            most = resource.getrlimit(resource.RLIMIT_DATA)[1]  # only root may raise it
            resource.setrlimit(resource.RLIMIT_DATA, (2**20, most))
        case _:
            os.kill(os.getpid(), getattr(signal, kind))


def _arm(fault: dict[str, Any]) -> None:
    calls, begun = 0, False

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls, begun
        if event != "call":
            return
        begun = begun or frame.f_code.co_name == fault["after"]
        calls += begun
        if calls == fault["at"]:
            sys.setprofile(None)
            with contextlib.suppress(FileExistsError), Path(fault["token"]).open("x"):
                _inject(fault["kind"])

    def tell() -> None:
        sys.setprofile(None)
        with contextlib.suppress(FileExistsError), Path(fault["token"]).open("x") as file:
            file.write(str(calls))

    if fault["kind"] == "count":
        atexit.register(tell)
    sys.setprofile(count)


for _fault in json.loads(os.environ.get("BYTE_EXACT_FAULTS", "[]")):
    if _fault["module"] in sys.orig_argv[1:6]:
        _arm(_fault)
