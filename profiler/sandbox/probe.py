"""One variant under measurement: loaded in a child process, sampled as its owner likes.

Variants and batch sizes are compared fairly when they take turns: each ``Probe.sample`` is a short
turn, all turns of a batch size are kept together, and ``settle`` goes round until every median is
known well enough.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from profiler.evaluation.accuracy import BATCH, FIRST, Judgement
from profiler.sandbox.calls import Announce
from profiler.sandbox.enough import is_settled, is_too_slow, is_useful
from profiler.sandbox.limits import MeasureLimits, SandboxLimits
from profiler.sandbox.measure import Weight
from profiler.sandbox.sandbox import Sandbox, ignored
from profiler.timing.statistics import Round, Sample
from variants.errors import InvalidArtifact, TrialTimedOut, TrialTooLarge
from variants.metrics.metric import LABELS
from variants.types import LatencyPoint
from workers.types import LoadSpec

Settling = Callable[[int, int, float], None]
"""Called with how many batch sizes are settled, with how many there are, and with about which share
of the time that takes is over."""
MOST = 0.95
"""How far a batch size seems to be at most that is not settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a variant costs beside its latency."""

    load_s: float
    """Warm, the median of several."""
    cold_load_s: float
    """The first load in a new process, the import of its back end included."""
    memory_mib: float
    """Most memory that was taken of the device, with the batch sizes that were sampled so far."""
    host_memory_mib: float | None = None
    """Most memory that was taken of the host, for a variant on a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooMuch:
    """The smallest batch size that a trial could not run; larger ones are not tried."""

    batch_size: int
    time_s: float | None = None
    """Within which it did not finish; None: it took more memory than there was."""

    @property
    def reason(self) -> str:
        """What such batches do, in words."""
        if self.time_s is None:
            return "take more memory than there is"
        return f"do not finish within {self.time_s:,g} s"


class Probe:
    """A variant in a child process of its own.

    Use as a context manager: entering starts the process and loads the variant, leaving ends the
    process. It may be entered again; samples are kept.

    Whatever the variant does to its process (a crash, endless work, all the memory) ends this
    probe, and every further call of it, with ``InvalidArtifact``, one sentence.
    """

    def __init__(
        self,
        spec: LoadSpec | Mapping[str, Any],
        *,
        threads: int,
        data: Path,
        limits: MeasureLimits | None = None,
        memory_mib: float = 8192,
        time_s: float = 900.0,
        gpu: bool = False,
        pinned: bool = False,
        samples: Mapping[int, Sample] | None = None,
        figures: Figures | None = None,
        too_much: TooMuch | None = None,
    ) -> None:
        """
        Args:
            spec: a load spec, or the plain values of one.
            threads: that compute one batch.
            data: an ``.npz`` with an array of rows for each input, labels if it is to be judged.
            memory_mib: what its process may take.
            time_s: wall-clock time that one call may take.
            gpu: whether it runs on one.
            pinned: whether the process stays on ``threads`` cores. A worker does not pin.
            samples: what was sampled before, by batch size; it counts as if it had been just now.
            figures: what loading has cost then.
            too_much: what could not be run then.
        """
        self._spec = asdict(spec) if isinstance(spec, LoadSpec) else dict(spec)
        self._threads = threads
        self._data = data
        self.limits = limits or MeasureLimits()
        self._sandbox = Sandbox(
            SandboxLimits(memory_mib=memory_mib, time_s=time_s),
            threads=threads,
            runtime=str(self._spec["runtime"]),
            gpu=gpu,
        )
        self._gpu = gpu
        self._cores = cores_for(threads) if pinned else ()
        self._samples = dict(samples or {})
        self._figures = figures
        self._time_s = time_s
        self.too_much = too_much
        """From which batch size on none can be run, once one could not."""

    @property
    def name(self) -> str:
        return str(self._spec["variant"])

    @property
    def pid(self) -> int:
        """The process id of the child; 0 when there is none."""
        return self._sandbox.pid

    def __enter__(self) -> Self:
        self._sandbox.__enter__()
        try:
            found = self._call(
                "load",
                {
                    "spec": self._spec,
                    "threads": self._threads,
                    "data": str(self._data),
                    "cores": list(self._cores),
                    "gpu": self._gpu,
                },
            )
        except BaseException:
            self._sandbox.__exit__()
            raise
        before = self._figures or Figures(load_s=0.0, cold_load_s=0.0, memory_mib=0.0)
        self._figures = replace(before, **found)
        return self

    def __exit__(self, *_: object) -> None:
        self._sandbox.__exit__()

    @property
    def figures(self) -> Figures:
        """What the last load has cost; the memory is the most of all loads.

        Raises:
            InvalidArtifact: it never was.
        """
        if self._figures is None:
            raise InvalidArtifact(f"{self.name} was not loaded")
        return self._figures

    @property
    def samples(self) -> Mapping[int, Sample]:
        """What was sampled so far, by batch size."""
        return self._samples

    def sample(self, batch_size: int, *, seconds: float | None = None) -> Sample:
        """One turn of a batch size, ``seconds`` long; returns all its turns together.

        The first turn of a batch size warms up before. A batch slower than the limit is run once
        and no more.

        Raises:
            InvalidArtifact: the variant failed, or its process has ended.
        """
        limits = self.limits
        found = self._call(
            "turn",
            {
                "batch_size": batch_size,
                "seconds": limits.point_s / limits.rounds if seconds is None else seconds,
                "least": -(-limits.min_runs // limits.rounds),
                "most": max(1, limits.max_runs // limits.rounds),
                "slowest_s": limits.slowest_batch_s,
            },
        )
        turn = Sample(batch_size, (Round(*map(tuple, found["times_s"])),))
        before = self._samples.get(batch_size)
        whole = turn if before is None else before.merged(turn)
        self._samples[batch_size] = whole
        self._weigh(found)
        return whole

    def sample_if_fits(self, batch_size: int) -> Sample | None:
        """One turn of a batch size; None if it takes more memory or more time than a trial may,
        and then the variant is loaded again for smaller ones.

        Raises:
            InvalidArtifact: the variant failed otherwise, or does so with the smallest batch.
        """
        if not self.can_run(batch_size):
            return None
        try:
            return self.sample(batch_size)
        except (TrialTooLarge, TrialTimedOut) as error:
            if batch_size <= min(self.limits.batch_sizes):
                raise
            time_s = self._time_s if isinstance(error, TrialTimedOut) else None
            self.too_much = TooMuch(batch_size=batch_size, time_s=time_s)
            self.__exit__()
            self.__enter__()
            return None

    def can_run(self, batch_size: int) -> bool:
        """Whether no batch of this size or a smaller one has failed for its size."""
        return self.too_much is None or batch_size < self.too_much.batch_size

    def judge(
        self,
        truth: str = LABELS,
        *,
        metric: str = "top1",
        along: int | None = None,
        reference: Path | None = None,
        keep: Path | None = None,
        classes: Sequence[str] = (),
        batch_size: int = BATCH,
        announce: Announce = ignored,
    ) -> Judgement:
        """Its accuracy on the rows of the data, and its agreement with a reference.

        Where a batch takes more memory or more time than a trial may, all rows are answered again
        in smaller ones, once: of as many rows as the first batch had if that was answered, else one
        by one. If they are answered so, larger ones count as too large from then on.

        Args:
            truth: which array of the data has the labels or targets.
            metric: as the catalog writes it.
            along: the axis of a row of the first output along which positions are judged one by
                one.
            reference: the outputs that another probe has kept, of the same rows.
            keep: a file to write its outputs to.
            classes: what they are called in sentences.
            announce: called with the rows that are answered, and with how many there are.

        Raises:
            InvalidArtifact: it failed, or gave what is not finite.
        """
        asked = {
            "truth": truth,
            "metric": metric,
            "along": along,
            "reference": str(reference or ""),
            "keep": str(keep or ""),
            "classes": list(classes),
        }
        answered = left = 0

        def heard(done: int, total: int) -> None:
            nonlocal answered, left
            answered, left = done, total - min(done, FIRST)
            announce(done, total)

        try:
            return Judgement(**self._call("judge", {**asked, "batch_size": batch_size}, heard))
        except (TrialTooLarge, TrialTimedOut) as error:
            fewer = FIRST if answered else 1
            failed = min(batch_size if answered else FIRST, left)
            if failed <= fewer:
                raise
            time_s = self._time_s if isinstance(error, TrialTimedOut) else None
        self.__exit__()
        self.__enter__()
        found = self._call("judge", {**asked, "batch_size": fewer}, announce)
        if min(self.limits.batch_sizes) < failed and self.can_run(failed):
            self.too_much = TooMuch(batch_size=failed, time_s=time_s)
        return Judgement(**found)

    def weigh(self, batch_sizes: Iterable[int]) -> Weight:
        """What it takes of the device in a worker that serves batches of these sizes.

        It is loaded anew for that; on a GPU it is what was seen so far.

        Raises:
            InvalidArtifact: it failed.
        """
        found = self._call("weigh", {"batch_sizes": sorted(batch_sizes)})
        if found["memory_mib"] is None:
            return Weight(self.figures.memory_mib)
        return Weight(**found)

    def energy(self, batch_sizes: Iterable[int], share: float = 1.0) -> dict[int, float]:
        """Joules of a batch of each of these sizes; ``share`` is the worker's part of what its
        device draws idle.

        Empty where no meter can be read. Each takes half a second, or two seconds on a GPU.

        Raises:
            InvalidArtifact: it failed.
        """
        taken: dict[int, float] = {}
        for size in batch_sizes:
            found = self._call("energy", {"batch_size": size, "share": share})["energy_j"]
            if found is None:
                return {}
            taken[size] = float(found)
        return taken

    def rounds(self, batch_size: int) -> int:
        """How many turns it had."""
        sample = self._samples.get(batch_size)
        return 0 if sample is None else len(sample.rounds)

    def settled(self, batch_size: int) -> bool:
        """Whether sampling it further is of no use; see ``is_settled``."""
        sample = self._samples.get(batch_size)
        return sample is not None and is_settled(sample, self.limits)

    def curve(self, told: Settling = lambda *_: None) -> tuple[LatencyPoint, ...]:
        """Latency at the batch sizes of the limits, in turns.

        It ends before the first batch that is too slow or takes too much memory or time, or that
        is larger than is of use. ``told`` is called after each turn.

        Raises:
            InvalidArtifact: the variant failed, or its process has ended.
        """
        limits = self.limits
        sizes: list[int] = []
        for size in sorted(limits.batch_sizes):
            points = [self._samples[known].point for known in sizes]
            if size > limits.useful_above and not is_useful(points, limits.useful_gain):
                break
            sample = self.sample_if_fits(size)
            if sample is None or (sizes and is_too_slow(sample, limits)):
                break
            sizes.append(size)
            count = len(limits.batch_sizes)
            told(0, count, len(sizes) / count / limits.rounds)
        failures = settle([(self, size) for size in sizes], told)
        if failures:
            raise failures[self]
        return tuple(self._samples[size].point for size in sizes if self.can_run(size))

    def _weigh(self, found: Mapping[str, Any]) -> None:
        figures, here_mib = self.figures, float(found["memory_mib"])
        if found["device_mib"] is None:
            memory_mib = max(figures.memory_mib, here_mib)
            self._figures = replace(figures, memory_mib=memory_mib)
            return
        self._figures = replace(
            figures,
            memory_mib=max(figures.memory_mib, float(found["device_mib"])),
            host_memory_mib=max(figures.host_memory_mib or 0.0, here_mib),
        )

    def _call(
        self, method: str, arguments: Mapping[str, Any], announce: Announce = ignored
    ) -> dict[str, Any]:
        return self._sandbox.call(method, arguments, subject=self.name, announce=announce)


def settle(
    wanted: Iterable[tuple[Probe, int]], told: Settling = lambda *_: None
) -> dict[Probe, InvalidArtifact]:
    """Sample pairs of probe and batch size in turns until each is settled.

    Returns the probes that failed, and how; the others go on without them. A probe whose batch is
    found too large goes on with smaller ones. ``told`` is called after each turn.
    """
    failures: dict[Probe, InvalidArtifact] = {}
    pairs = list(wanted)
    going = [(probe, size) for probe, size in pairs if _goes_on(probe, size)]
    while going:
        for probe, size in going:
            if probe in failures:
                continue
            try:
                probe.sample_if_fits(size)
            except InvalidArtifact as error:
                failures[probe] = error
            told(*_how_far(pairs))
        going = [(p, size) for p, size in going if p not in failures and _goes_on(p, size)]
    return failures


def _goes_on(probe: Probe, batch_size: int) -> bool:
    return probe.can_run(batch_size) and not probe.settled(batch_size)


def _how_far(pairs: Sequence[tuple[Probe, int]]) -> tuple[int, int, float]:
    """What ``Settling`` is called with: a batch size not yet settled is as far as its rounds."""
    settled = [not _goes_on(probe, size) for probe, size in pairs]
    shares = [
        1.0 if over else min(MOST, probe.rounds(size) / probe.limits.rounds)
        for (probe, size), over in zip(pairs, settled, strict=True)
    ]
    return sum(settled), len(pairs), sum(shares) / len(pairs)


def cores_for(threads: int, available: Sequence[int] | None = None) -> tuple[int, ...]:
    """Which cores to keep a child on: the last ones, for the system likes the first."""
    cores = sorted(os.sched_getaffinity(0) if available is None else available)
    return tuple(cores[-threads:])
