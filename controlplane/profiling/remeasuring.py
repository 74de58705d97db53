"""Measuring variants that are registered already, with rows that are made up."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from controlplane.building.meter import Meter
from controlplane.building.types import Progress, RegistrationLimits
from controlplane.building.work_folder import work_folder
from controlplane.profiling.due.profiles import DueProfile
from controlplane.profiling.telling import Telling
from controlplane.profiling.workbench import Workbench
from profiler.sandbox.probe import Settling
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.errors import InvalidArtifact, VariantNotLoadable
from variants.types import PROFILE_BATCH_SIZES, DeviceKind, Profile, Task, Variant


def measure_due(
    due: Iterable[DueProfile],
    catalog: Catalog,
    store: ArtifactStore,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    limits: RegistrationLimits | None = None,
    ends: Callable[[], bool] = lambda: False,
) -> tuple[int, tuple[str, ...]]:
    """Measure profiles and keep each as soon as it is there: an interrupt loses one.

    Returns how many were measured, and one sentence for each variant that could not be. ``ends`` is
    asked before each one whether to measure no more.

    Raises:
        StateUnavailable: catalog or store cannot be reached.
    """
    work_list = list(due)
    tasks = {task.name: task for task in catalog.snapshot().tasks}
    meter = Meter(progress, total=len(work_list))
    telling = Telling(meter, len(work_list), unit="batch sizes", over="measured")
    done = 0
    failures: list[str] = []
    with work_folder() as work:
        for one in work_list:
            if ends():
                break
            variant, kind = one.variant, one.kind
            message = f"measuring {variant.name} on {kind.name}"
            meter.begin("measure", message)
            telling.begin(message)
            try:
                profile = measured(
                    tasks[variant.task], variant, kind, store, work, limits, told=telling.told
                )
            except VariantNotLoadable as error:
                failures.append(f"{variant.name}: {error.message}")
                continue
            except InvalidArtifact as error:
                failures.append(error.message)
                continue
            finally:
                telling.end()
            catalog.put_profiles((profile,), (kind,))
            done += 1
        if work_list:
            meter.finish("measure", "measured")
    return done, tuple(failures)


def measured(
    task: Task,
    variant: Variant,
    kind: DeviceKind,
    store: ArtifactStore,
    work: Path,
    limits: RegistrationLimits | None = None,
    machine: str = "",
    told: Settling = lambda *_: None,
) -> Profile:
    """The profile of a variant on this machine.

    Rows are made up, uniform in [0, 1): latency and memory hardly depend on values.

    Args:
        work: a folder for the rows, which are kept for other variants of the task.
        machine: what it is called in the profile; else its host name.
        told: hears how far it is.

    Raises:
        VariantNotLoadable: its artifact is missing, is damaged or cannot be read.
        InvalidArtifact: it failed, crashed, or took too long or too much memory.
    """
    data = work / f"{task.name}.npz"
    if not data.exists():
        np.savez(data, **made_up_rows(task))
    path = store.sound(variant.artifact)
    with Workbench(task, kind, data, limits or RegistrationLimits(), machine) as bench:
        return bench.measure(variant, path, told)


def made_up_rows(task: Task) -> dict[str, Any]:
    """Rows enough for the largest batch, for each input: ``(rows, *shape)``."""
    draw = np.random.default_rng(0)
    rows = max(PROFILE_BATCH_SIZES)
    return {spec.name: draw.random((rows, *spec.shape)).astype(spec.dtype) for spec in task.inputs}
