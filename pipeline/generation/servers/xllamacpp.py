"""llama.cpp's server from the xllamacpp wheel, as a separate process.

Run as a script, with `--model FILE --port N --slots N --context N --threads N`. It listens on
loopback only. Nothing else of the product imports it: the wheel is the extra `server`.
"""

from __future__ import annotations

import argparse
import importlib
import threading
from typing import Any


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    for name in ("--port", "--slots", "--context", "--threads"):
        parser.add_argument(name, type=int, required=True)
    given = parser.parse_args()
    xllamacpp: Any = importlib.import_module("xllamacpp")  # it has no types
    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.hostnames = ["127.0.0.1"]
    params.port = given.port
    params.n_parallel = given.slots
    params.n_ctx = given.context
    params.cpuparams.n_threads = given.threads
    params.cpuparams_batch.n_threads = given.threads
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_ram_mib = 0
    params.fit_params = False
    params.warmup = False
    params.ui = False
    server = xllamacpp.Server(params)
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main()
