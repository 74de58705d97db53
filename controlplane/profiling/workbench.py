"""Where variants are loaded to be judged and timed, each in a process of its own."""

import os
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from controlplane.building.types import RegistrationLimits
from controlplane.profiling.staleness import host_of
from profiler.evaluation.accuracy import Judgement
from profiler.sandbox.probe import Figures, Probe, settle
from profiler.timing.contention import Contention
from profiler.timing.statistics import Sample
from variants.metrics.metric import parse_metric
from variants.types import (
    DeviceKind,
    LatencyPoint,
    Profile,
    ProfileSource,
    Task,
    Variant,
    VariantName,
)

OPEN = 8
"""Processes that are kept at once: each holds a variant in memory, idle while others are timed."""


class Workbench:
    """Where variants of a task are measured on one device kind. Use as a context manager.

    Variants stay loaded in processes of their own, a few at a time, so that they can take turns.
    """

    def __init__(
        self,
        task: Task,
        kind: DeviceKind,
        data: Path,
        limits: RegistrationLimits,
        machine: str = "",
    ) -> None:
        """
        Args:
            data: an ``.npz`` with rows for each input, and labels if accuracy is wanted.
            machine: what profiles say that they were measured on; else the host name.
        """
        self.task = task
        self.kind = kind
        self._machine = machine or socket.gethostname()
        self._data = data
        self._limits = limits
        self._open: OrderedDict[VariantName, Probe] = OrderedDict()
        self._probes: dict[VariantName, Probe] = {}
        self._memory_mib: dict[VariantName, float] = {}
        self._weighed_mib: dict[VariantName, float] = {}
        """Memory of variants that were loaded anew, with only their profiled batch sizes run."""
        self._energy_j: dict[VariantName, Mapping[int, float]] = {}
        """Joules of a batch by its size, where they were measured."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._close(next(iter(self._open)))

    def probe(
        self, variant: Variant, path: Path, announce: Callable[[str], None] = lambda _: None
    ) -> Probe:
        """The variant's probe, loaded; another one may have to make room.

        Raises:
            InvalidArtifact: it cannot be loaded, or its process ended before.
        """
        name = variant.name
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        while len(self._open) >= OPEN:
            self._close(next(iter(self._open)))
        probe = self._probes.get(name)
        if probe is None:
            cores = self.kind.cores
            probe = self._probes[name] = Probe(
                load_values(variant, self.task, path, self.kind.name),
                threads=min(int(variant.options.get("threads", cores)), cores),
                data=self._data,
                limits=self._limits.measure,
                memory_mib=self._limits.trial_mib,
                time_s=self._limits.trial_s,
                gpu=self.kind.gpu is not None,
                announce=announce,
            )
        probe.__enter__()
        self._open[name] = probe
        return probe

    def measure(self, variant: Variant, path: Path) -> Profile:
        """Its profile at all batch sizes; its process ends.

        Raises:
            InvalidArtifact: it crashed, hung, took too much memory or failed.
        """
        probe = self.probe(variant, path)
        points = probe.curve()
        self.weigh(variant, path, points)
        sizes = sorted({points[0].batch_size, best_size(points), points[-1].batch_size})
        self._energy_j[variant.name] = probe.energy(sizes, share_of(self.kind))
        self.close(variant)
        return self.profile(variant, points, variant)

    def sample(self, variant: Variant, path: Path, batch_size: int) -> LatencyPoint:
        """Latency at one batch size, its median known as well as the limits want.

        Raises:
            InvalidArtifact: as ``measure`` does.
        """
        probe = self.probe(variant, path)
        for error in settle([(probe, batch_size)]).values():
            raise error
        return probe.samples[batch_size].point

    def weigh(self, variant: Variant, path: Path, points: Iterable[LatencyPoint]) -> None:
        """See what serving the batch sizes of a profile takes of the memory, no others.

        Raises:
            InvalidArtifact: as ``measure`` does.
        """
        sizes = [point.batch_size for point in points]
        self._weighed_mib[variant.name] = self.probe(variant, path).weigh(sizes)

    def samples(self, variant: Variant) -> Mapping[int, Sample]:
        """What was timed of it so far, by batch size."""
        return self._probes[variant.name].samples

    def judge(
        self, variant: Variant, path: Path, *, keep: Path | None, reference: Path | None
    ) -> Judgement:
        """Accuracy on the labelled rows, and agreement with a reference's first output."""
        metric = self.task.metric
        return self.probe(variant, path).judge(
            parse_metric(metric).truth, metric=metric, keep=keep, reference=reference
        )

    def close(self, variant: Variant) -> None:
        """End its process; what was sampled stays."""
        if variant.name in self._open:
            self._close(variant.name)

    def profile(self, variant: Variant, points: Iterable[LatencyPoint], like: Variant) -> Profile:
        """A profile of these points; what else it costs is what was seen of ``like``.

        Only points that were measured can have joules, and only those of the variant itself.
        """
        joules = self._energy_j.get(variant.name, {})
        points = tuple(replace(p, energy_j=joules.get(p.batch_size)) for p in points)
        figures = self._probes[like.name].figures
        seen_mib = max(figures.memory_mib, self._memory_mib.get(like.name, 0.0))
        predicted = any(point.error for point in points)
        return Profile(
            task=self.task.name,
            variant=variant.name,
            device_kind=self.kind.name,
            points=points,
            memory_mib=self._weighed_mib.get(like.name, seen_mib),
            host_memory_mib=figures.host_memory_mib,
            load_s=figures.load_s,
            cold_load_s=figures.cold_load_s,
            source=ProfileSource.PREDICTED if predicted else ProfileSource.MEASURED,
            energy_j=joules[best] / best if (best := best_size(points)) in joules else None,
            host=host_of(variant),
            measured_at=now(),
            measured_on=self._machine,
            beside_load=any(
                sample.contention is Contention.INSTEAD for sample in self.samples(like).values()
            ),
        )

    def _close(self, name: VariantName) -> None:
        probe = self._open.pop(name)
        figures: Figures = probe.figures
        self._memory_mib[name] = max(self._memory_mib.get(name, 0.0), figures.memory_mib)
        probe.__exit__()


def best_size(points: Iterable[LatencyPoint]) -> int:
    """The batch size of the highest throughput."""
    best = max(points, key=lambda point: point.batch_size / max(point.p50_ms, 1e-9))
    return best.batch_size


def share_of(kind: DeviceKind) -> float:
    """A worker's part of its device: counters of a CPU count all cores, those of a GPU it alone."""
    return 1.0 if kind.gpu is not None else min(1.0, kind.cores / (os.cpu_count() or 1))


def load_values(variant: Variant, task: Task, path: Path, device_kind: str = "") -> dict[str, Any]:
    """The plain JSON values from which ``profiler.sandbox.child.load_spec`` makes a load spec."""
    return {
        "task": task.name,
        "variant": variant.name,
        "runtime": variant.runtime,
        "artifact": variant.artifact,
        "path": str(path),
        "inputs": [asdict(spec) for spec in task.inputs],
        "outputs": [asdict(spec) for spec in task.outputs],
        "options": list(variant.options.items()),
        "device_kind": device_kind,
    }


def now() -> str:
    """This moment in UTC, as the catalog writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
