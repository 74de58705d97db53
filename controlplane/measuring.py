"""Measuring the variants of one model on one device kind: accuracy, memory, load time, latency.

Each variant has a process of its own. How many threads compute a batch is measured too: a smaller
number becomes a variant of its own where it is better at something than all of them.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from controlplane.building import REFERENCE, BuiltVariant
from controlplane.frontier import dominated
from controlplane.meter import Meter
from controlplane.registration_types import RegistrationLimits, SkippedVariant
from profiler.accuracy import Judgement
from profiler.evaluation import LABELS
from profiler.host import LIBRARIES, fingerprint, gpu_and_driver
from profiler.probe import Figures, Probe
from variants.errors import InvalidArtifact
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A variant with its accuracy, and its profile on one device kind."""

    variant: Variant
    path: Path
    profile: Profile


def thread_counts(kind: DeviceKind) -> tuple[int, ...]:
    """Numbers of threads worth trying on a device kind: all its cores, and powers of two below."""
    if kind.gpu is not None:
        return (kind.cores,)
    below = [1 << i for i in range(kind.cores.bit_length()) if 1 << i < kind.cores]
    return (kind.cores, *reversed(below))


def with_threads(variant: Variant, threads: int) -> Variant:
    """The variant that computes with fewer threads than its worker has: ``...-t1``."""
    return replace(
        variant,
        name=VariantName(f"{variant.name}-t{threads}"),
        options={**variant.options, "threads": str(threads)},
    )


class Bench:
    """Where variants of a task are measured on one device kind. Use as a context manager.

    Variants stay loaded in processes of their own, a few at a time, so that they can take turns.
    """

    def __init__(
        self, task: Task, kind: DeviceKind, data: Path, limits: RegistrationLimits
    ) -> None:
        """``data`` is an ``.npz`` with rows for each input, and labels if accuracy is wanted."""
        self.task = task
        self.kind = kind
        self._data = data
        self._limits = limits
        self._open: OrderedDict[VariantName, Probe] = OrderedDict()
        self._probes: dict[VariantName, Probe] = {}
        self._memory_mib: dict[VariantName, float] = {}
        self._energy_j: dict[VariantName, float | None] = {}

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
                load_values(variant, self.task, path),
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
        self._energy_j[variant.name] = probe.energy()
        self.close(variant)
        return self.profile(variant, points, variant)

    def judge(
        self, variant: Variant, path: Path, *, keep: Path | None, reference: Path | None
    ) -> Judgement:
        """Accuracy on the labelled rows, and agreement with a reference's scores."""
        return self.probe(variant, path).judge(
            LABELS, metric=self.task.metric, keep=keep, reference=reference
        )

    def close(self, variant: Variant) -> None:
        """End its process; what was sampled stays."""
        if variant.name in self._open:
            self._close(variant.name)

    def profile(self, variant: Variant, points: Iterable[LatencyPoint], like: Variant) -> Profile:
        """A profile of these points; what else it costs is what was seen of ``like``."""
        points = tuple(points)
        figures = self._probes[like.name].figures
        predicted = any(point.error for point in points)
        return Profile(
            task=self.task.name,
            variant=variant.name,
            device_kind=self.kind.name,
            points=points,
            memory_mib=max(figures.memory_mib, self._memory_mib.get(like.name, 0.0)),
            host_memory_mib=figures.host_memory_mib,
            load_s=figures.load_s,
            cold_load_s=figures.cold_load_s,
            source=ProfileSource.PREDICTED if predicted else ProfileSource.MEASURED,
            energy_j=self._energy_j.get(like.name),
            host=host_of(variant),
            measured_at=now(),
        )

    def _close(self, name: VariantName) -> None:
        probe = self._open.pop(name)
        figures: Figures = probe.figures
        self._memory_mib[name] = max(self._memory_mib.get(name, 0.0), figures.memory_mib)
        probe.__exit__()


class Measuring:
    """Measures all variants that were built of one version, on one device kind, in full."""

    def __init__(
        self, bench: Bench, meter: Meter, folder: Path, *, threads: Sequence[int] | None = None
    ) -> None:
        """``folder`` is for scores; ``threads`` are the numbers to try, all cores among them."""
        self._bench = bench
        self._meter = meter
        self._scores = folder / "reference.npy"
        self._threads = tuple(threads or thread_counts(bench.kind))

    def compare_with(self, reference: BuiltVariant) -> None:
        """Run the evaluation rows through the model itself, to compare others' answers with."""
        if reference.variant.gpu == (self._bench.kind.gpu is not None):
            self._bench.judge(reference.variant, reference.path, keep=self._scores, reference=None)
            self._bench.close(reference.variant)

    def measure(
        self, built: Sequence[BuiltVariant], judged: Iterable[Variant] = ()
    ) -> tuple[list[Measured], list[SkippedVariant]]:
        """What could be measured, and what could not.

        ``judged`` are the same variants with the accuracy that another device kind has given.

        Raises:
            InvalidArtifact: the model itself, the first of them, failed.
        """
        known = {variant.name: variant for variant in judged}
        measured: list[Measured] = []
        skipped: list[SkippedVariant] = []
        for one in built:
            message = f"measuring {one.variant.name} on {self._bench.kind.name}"
            self._meter.begin("measure", message)
            try:
                measured += self._one(one, known.get(one.variant.name), message)
            except InvalidArtifact as error:
                if one.kind == REFERENCE:
                    raise InvalidArtifact(error.message) from error
                reason = error.message.removeprefix(f"{one.variant.name}: ")
                skipped.append(SkippedVariant(name=one.variant.name, reason=reason))
        return measured, skipped

    def _one(self, built: BuiltVariant, known: Variant | None, message: str) -> list[Measured]:
        """A variant, and those with fewer threads that are better at something."""
        bench, path = self._bench, built.path
        variant = known or self._judged(built, message)
        found: list[Measured] = []
        for threads in self._threads:
            one = variant if threads == bench.kind.cores else with_threads(variant, threads)
            self._meter.say("measure", f"{message}: {threads} threads")
            found.append(Measured(variant=one, path=path, profile=bench.measure(one, path)))
        return undominated(found)

    def _judged(self, built: BuiltVariant, message: str) -> Variant:
        first = built.kind == REFERENCE
        self._meter.say("measure", f"{message}: running the evaluation rows")
        judgement = self._bench.judge(
            built.variant,
            built.path,
            keep=self._scores if first else None,
            reference=None if first else self._scores,
        )
        return judged(built.variant, judgement, first=first)


def host_of(variant: Variant) -> str:
    """What a variant is measured on here."""
    gpu, driver = gpu_and_driver() if variant.gpu else ("", "")
    return fingerprint(*LIBRARIES.get(variant.runtime, ()), gpu=gpu, driver=driver)


def judged(variant: Variant, judgement: Judgement, *, first: bool) -> Variant:
    """The variant with what its answers are worth; the first is what the others agree with."""
    return replace(
        variant,
        accuracy=judgement.accuracy,
        accuracy_rows=judgement.rows,
        agreement=1.0 if first else judgement.agreement,
    )


def undominated(siblings: list[Measured]) -> list[Measured]:
    """The first, which has all threads, and those that none of the siblings dominates.

    They differ in threads only: one that is worse at everything is no variant that anybody misses.
    """
    beaten = dominated([one.variant for one in siblings], [one.profile for one in siblings])
    return [
        one
        for one in siblings
        if one is siblings[0] or (one.profile.device_kind, one.variant.name) not in beaten
    ]


def load_values(variant: Variant, task: Task, path: Path) -> dict[str, Any]:
    """What ``profiler.child.load_spec`` reads."""
    return {
        "task": task.name,
        "variant": variant.name,
        "runtime": variant.runtime,
        "artifact": variant.artifact,
        "path": str(path),
        "inputs": [asdict(spec) for spec in task.inputs],
        "outputs": [asdict(spec) for spec in task.outputs],
        "options": list(variant.options.items()),
    }


def now() -> str:
    """This moment in UTC, as the catalog writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
