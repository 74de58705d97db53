"""The GPUs of this machine, as NVML lists them: nothing is started on them."""

import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from variants.builders.gpu_requirements import missing_gpu

KEPT = 0.9
"""The part of a GPU's memory that variants may take. The rest is for the contexts of the worker and
of a model that is measured beside it, the libraries' own memory, and what lies idle between
blocks."""
NAMES = "nvidia-"
"""Device kinds whose names begin so are GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """GPUs of one name."""

    name: str
    """As the driver calls it: ``NVIDIA H100 80GB HBM3``."""
    count: int
    memory_mib: float
    """Of one, in all."""

    @property
    def kind(self) -> str:
        """The name of its device kind: ``nvidia-h100-80gb-hbm3``."""
        name = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return name if name.startswith(NAMES) else NAMES + name

    @property
    def usable_mib(self) -> float:
        """What variants may take of one."""
        return float(int(self.memory_mib * KEPT))


@cache
def machine_gpus() -> tuple[GpuModel, ...]:
    """The GPUs that this process may use, by name; none where there is no driver."""
    return () if missing_gpu() else gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))


def gpus(
    visible: str | None = None, nvml: Callable[[], Any] = lambda: import_module("pynvml")
) -> tuple[GpuModel, ...]:
    """The GPUs that NVML lists, in its order of their first.

    None where one of them is split into MIG instances: Ray, which hands out GPUs by their number,
    might give that one to a worker, which would see one instance of it.

    Args:
        visible: as in ``CUDA_VISIBLE_DEVICES``; None: all.
    """
    try:
        library = nvml()
        library.nvmlInit()
        listed = int(library.nvmlDeviceGetCount())
    except Exception:  # without the driver's library there is nothing that could be used
        return ()
    counts: Counter[str] = Counter()
    memory_mib: dict[str, float] = {}
    for index in range(listed):
        with suppress(library.NVMLError):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(library.nvmlDeviceGetUUID(handle))
            if _is_visible(visible, index, uuid):
                if _is_split(library, handle):
                    return ()
                name = _text(library.nvmlDeviceGetName(handle))
                counts[name] += 1
                mib = library.nvmlDeviceGetMemoryInfo(handle).total / 2**20
                memory_mib[name] = min(mib, memory_mib.get(name, mib))
    return tuple(
        GpuModel(name=name, count=count, memory_mib=memory_mib[name])
        for name, count in counts.items()
    )


def _is_visible(visible: str | None, index: int, uuid: str) -> bool:
    if visible is None:
        return True
    named = [part.strip() for part in visible.split(",")]
    return str(index) in named or any(
        part and part != "GPU-" and uuid.startswith(part) for part in named if not part.isdigit()
    )


def _is_split(library: Any, handle: Any) -> bool:
    """Whether it is in MIG mode; models that have none raise."""
    with suppress(library.NVMLError):
        return bool(library.nvmlDeviceGetMigMode(handle)[0])
    return False


def _text(value: bytes | str) -> str:
    """Older versions of the module return bytes."""
    return value.decode() if isinstance(value, bytes) else value
