"""Slices: the device kinds that a machine is split into, as people write them.

``2xcpu-1,1-4xcpu-2:memory_mib=1024:usd_per_hour=0.05`` is two workers of one core, and one to four
of two cores, of which plans decide how many run; ``1xnvidia-h200`` is a worker with a GPU. Kinds
are separated by commas and their properties by colons; the names of the properties are those of the
planning files' columns. ``1xcpu-2|2xcpu-1`` is two layouts of one machine, of which plans choose: a
worker of two cores, or two of one.

Read ``slice`` (what they are), ``reading`` (from text) and ``filling`` (what was not said of them).
Who uses them imports them from here.
"""

from controlplane.slices.filling import filled_in, gpu_slices, written
from controlplane.slices.reading import FOUND, MOST_KINDS, layouts_of, slices_of
from controlplane.slices.slice import (
    GPU_CORES,
    MOST_WORKERS,
    Kind,
    NodesWith,
    Slice,
    Source,
    cores_of,
    cpu_kind,
)

__all__ = [
    "FOUND",
    "GPU_CORES",
    "MOST_KINDS",
    "MOST_WORKERS",
    "Kind",
    "NodesWith",
    "Slice",
    "Source",
    "cores_of",
    "cpu_kind",
    "filled_in",
    "gpu_slices",
    "layouts_of",
    "slices_of",
    "written",
]
