"""The settings of the group `runtime`: where and how llama.cpp runs."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.settings import setting


@dataclass(frozen=True)
class RuntimeSettings:
    """Where and how llama.cpp runs."""

    device: str = setting("auto", one_of=("auto", "cpu", "gpu"))
    """cpu, gpu or auto; auto uses the GPU if llama.cpp supports one and finds it."""
    n_seq: int = setting(0, least=0, most=256)
    """Largest batch, in cells; 0 chooses by device and free memory."""
    n_threads: int = setting(0, least=0)
    """Threads for decoding; 0 chooses one for small models and every processor for others."""
    memory_limit: float | None = setting(None, least=0.25)
    """Memory limit of a worker, in GiB; null for the machine's memory."""
    llama_lib: str | None = None
    """Your own libllama, used instead of llama-cpp-python's; its interface must be the same."""
    llguidance_lib: str | None = None
    """A library with llguidance's C interface, used instead of the wheel's."""
