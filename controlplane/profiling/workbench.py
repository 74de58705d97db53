"""Where variants are loaded to be judged and timed, each in a process of its own."""

import os
import socket
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from controlplane.building.build_cache import BuildCache
from controlplane.building.digests import file_digest
from controlplane.building.types import RegistrationLimits
from controlplane.profiling.due.staleness import host_of
from controlplane.profiling.notebook import Notebook, Readings
from profiler.evaluation.accuracy import Judgement
from profiler.sandbox.calls import Announce, load_values
from profiler.sandbox.measure import Weight
from profiler.sandbox.probe import Figures, Probe, Settling, TooMuch, settle
from profiler.sandbox.sandbox import ignored
from profiler.timing.contention import Contention
from profiler.timing.statistics import Sample
from variants.buckets import positions_axis
from variants.errors import InvalidArtifact
from variants.figures import counted
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
HELD_SHARE = 0.5
"""What variants in idle processes hold together is at most this part of what one trial may take.
Those of a large model would take a multiple of it, beside all that answers queries."""


class Workbench:
    """Where variants of a task are measured on one device kind. Use as a context manager.

    Variants stay loaded in processes of their own, a few at a time, so that they can take turns.
    What was measured before of the same, on this machine, is known already: nothing is loaded for
    it.
    """

    def __init__(
        self,
        task: Task,
        kind: DeviceKind,
        data: Path,
        limits: RegistrationLimits,
        machine: str = "",
        *,
        cache: BuildCache | None = None,
        rows: str = "",
    ) -> None:
        """
        Args:
            data: an ``.npz`` with rows for each input, and labels if accuracy is wanted.
            machine: what profiles say that they were measured on; else the host name.
            cache: has what was measured before, and gets what is measured now.
            rows: digest of the rows in ``data``, where there is a cache.
        """
        self.task = task
        self.kind = kind
        self._machine = machine or socket.gethostname()
        self._data = data
        self._limits = limits
        self._notebook = (
            None
            if cache is None
            else Notebook(cache, task, kind, rows, limits.measure, self._machine)
        )
        self._open: OrderedDict[VariantName, Probe] = OrderedDict()
        self._probes: dict[VariantName, Probe] = {}
        self._loaded: set[VariantName] = set()
        """Variants for which a process was started."""
        self._memory_mib: dict[VariantName, float] = {}
        self._weighed: dict[VariantName, Weight] = {}
        """Memory of variants that were loaded anew, with only their profiled batch sizes run."""
        self._weighings: dict[VariantName, dict[str, Weight]] = {}
        """All of these, by the batch sizes that were served: ``1,2,4``."""
        self._energy_j: dict[VariantName, Mapping[int, float]] = {}
        """Joules of a batch by its size, where they were measured."""
        self._profiles: dict[VariantName, Profile] = {}
        """Those that were measured in full, now or before."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._close(next(iter(self._open)))

    # -- what was measured before -----------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return Path() if self._notebook is None else self._notebook.folder

    def judged_before(
        self, variant: Variant, *, keep: Path | None, reference: Path | None
    ) -> Judgement | None:
        """What ``judge`` has found of the same; the scores are where ``keep`` says then."""
        if self._notebook is None:
            return None
        return self._notebook.judgement(variant, _digest(reference), keep)

    def measured_before(self, variant: Variant, path: Path) -> bool:
        """Whether ``measure`` has nothing to do."""
        self._known(variant, path)
        return variant.name in self._profiles

    def timed_before(self, variant: Variant, path: Path, batch_size: int) -> bool:
        """Whether ``sample`` has nothing to do."""
        return self._known(variant, path).settled(batch_size)

    def is_open(self, variant: Variant) -> bool:
        """Whether its process runs, with the variant loaded."""
        return variant.name in self._open

    def has_loaded(self, variant: Variant) -> bool:
        """Whether something was measured of it now."""
        return variant.name in self._loaded

    def _known(self, variant: Variant, path: Path) -> Probe:
        """The variant's probe, with what was seen before; it need not be loaded."""
        name = variant.name
        if name in self._probes:
            return self._probes[name]
        before = Readings() if self._notebook is None else self._notebook.readings(variant)
        cores = self.kind.cores
        probe = self._probes[name] = Probe(
            load_values(variant, self.task, path, self.kind.name),
            threads=min(int(variant.options.get("threads", cores)), cores),
            data=self._data,
            limits=self._limits.measure,
            memory_mib=self._limits.trial.memory_mib,
            time_s=self._limits.trial.time_s,
            gpu=self.kind.gpu is not None,
            samples=before.samples,
            figures=before.figures,
            too_much=before.too_much,
        )
        self._weighings[name] = dict(before.weighed)
        if before.profile is not None:
            self._profiles[name] = before.profile
        return probe

    def _note(self, variant: Variant) -> None:
        """Keep what was seen of a variant so far, for whoever measures the same again."""
        if self._notebook is None:
            return
        probe, name = self._probes[variant.name], variant.name
        self._notebook.note_readings(
            variant,
            Readings(
                samples=probe.samples,
                figures=probe.figures,
                weighed=self._weighings[name],
                profile=self._profiles.get(name),
                too_much=probe.too_much,
            ),
        )

    # -- measuring --------------------------------------------------------------------------------

    def probe(self, variant: Variant, path: Path) -> Probe:
        """The variant's probe, loaded; another one may have to make room.

        Raises:
            InvalidArtifact: it cannot be loaded, or its process ended before.
        """
        name = variant.name
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        most_mib = HELD_SHARE * self._limits.trial.memory_mib
        while len(self._open) >= OPEN or self._held_mib() > most_mib:
            self._close(next(iter(self._open)))
        probe = self._known(variant, path)
        self._loaded.add(name)
        probe.__enter__()
        self._open[name] = probe
        return probe

    def _held_mib(self) -> float:
        """What the variants whose processes run have taken."""
        return sum(probe.figures.memory_mib for probe in self._open.values())

    def measure(self, variant: Variant, path: Path, told: Settling = lambda *_: None) -> Profile:
        """Its profile at all batch sizes; its process ends. ``told`` hears how far it is.

        Raises:
            InvalidArtifact: it crashed, hung, took too much memory or failed.
        """
        if self.measured_before(variant, path):
            self.close(variant)
            return self._profiles[variant.name]
        probe = self.probe(variant, path)
        points = probe.curve(told)
        self.weigh(variant, path, points)
        sizes = sorted({points[0].batch_size, best_size(points), points[-1].batch_size})
        self._energy_j[variant.name] = probe.energy(sizes, share_of(self.kind))
        self.close(variant)
        profile = self._profiles[variant.name] = self.profile(variant, points, variant)
        self._note(variant)
        return profile

    def time(self, variant: Variant, path: Path, batch_size: int) -> bool:
        """Have an idea of its latency at one batch size: a turn, unless there was one before.

        Returns whether it could be run: there is memory for it, and it ends in its time.

        Raises:
            InvalidArtifact: as ``measure`` does.
        """
        known = self._known(variant, path)
        if not known.can_run(batch_size):
            return False
        if batch_size not in known.samples:
            sample = self.probe(variant, path).sample_if_fits(batch_size)
            self._note(variant)
            return sample is not None
        return True

    def too_much(self, variant: Variant) -> TooMuch | None:
        """The smallest batch size that could not be run, as far as was tried."""
        return self._probes[variant.name].too_much

    def sample(self, variant: Variant, path: Path, batch_size: int) -> LatencyPoint:
        """Latency at one batch size, its median known as well as the limits want.

        Raises:
            InvalidArtifact: as ``measure`` does.
        """
        if not self.timed_before(variant, path, batch_size):
            probe = self.probe(variant, path)
            for error in settle([(probe, batch_size)]).values():
                raise error
            self._note(variant)
            if (found := probe.too_much) is not None and not probe.can_run(batch_size):
                raise InvalidArtifact(
                    f"{variant.name}: {counted(found.batch_size, 'row')} at once and more"
                    f" {found.reason}"
                )
        return self.samples(variant)[batch_size].point

    def weigh(self, variant: Variant, path: Path, points: Iterable[LatencyPoint]) -> None:
        """See what serving the batch sizes of a profile takes of the memory, no others.

        Raises:
            InvalidArtifact: as ``measure`` does.
        """
        sizes = [point.batch_size for point in points]
        self._known(variant, path)
        known, served = self._weighings[variant.name], ",".join(map(str, sorted(sizes)))
        if served not in known:
            known[served] = self.probe(variant, path).weigh(sizes)
            self._note(variant)
        self._weighed[variant.name] = known[served]

    def samples(self, variant: Variant) -> Mapping[int, Sample]:
        """What was timed of it so far, by batch size."""
        return self._probes[variant.name].samples

    def judge(
        self,
        variant: Variant,
        path: Path,
        *,
        keep: Path | None,
        reference: Path | None,
        announce: Announce = ignored,
    ) -> Judgement:
        """Accuracy on the labelled rows, and agreement with a reference's first output.

        ``announce`` hears how many rows are answered.
        """
        metric = self.task.metric
        found = self.probe(variant, path).judge(
            parse_metric(metric).truth,
            metric=metric,
            along=positions_axis(self.task),
            keep=keep,
            reference=reference,
            classes=self.task.labels,
            announce=announce,
        )
        self._note(variant)  # of a size of batches that it could not run, too
        if self._notebook is not None:
            self._notebook.note_judgement(variant, _digest(reference), found, keep)
        return found

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
        weight = self._weighed.get(like.name, Weight(seen_mib))
        predicted = any(point.error for point in points)
        return Profile(
            task=self.task.name,
            variant=variant.name,
            device_kind=self.kind.name,
            points=points,
            memory_mib=weight.memory_mib,
            working_mib=weight.working_mib,
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


def now() -> str:
    """This moment in UTC, as the catalog writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _digest(scores: Path | None) -> str:
    """Of a file of scores; empty where there is none."""
    return "" if scores is None else file_digest(scores)
