"""Measuring the variants of one model on one device kind: accuracy, memory, load time, latency.

How many threads compute a batch is measured too: a smaller number becomes a variant of its own
where it is better at something than all of them. What would take long to measure in full is
sampled: a part of the grid (kind x threads x batch size) is measured and the rest predicted
(``profiler.sampling.search``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.building.family import REFERENCE, BuiltVariant
from controlplane.building.meter import Meter
from controlplane.building.types import SkippedVariant, Thoroughness
from controlplane.profiling.configurations import History, thread_counts, with_threads
from controlplane.profiling.telling import Telling
from controlplane.profiling.workbench import Workbench
from controlplane.views.catalog.frontier import dominated
from profiler.evaluation.accuracy import Judgement
from profiler.sampling.search import Search
from profiler.sampling.space import Configuration, Space
from profiler.sandbox.limits import MeasureLimits
from variants.errors import InvalidArtifact
from variants.figures import accuracy_text, counted
from variants.types import Digest, LatencyPoint, Precision, Profile, Variant, VariantName

FULL_S = 60.0
"""What takes longer than this to measure in full is sampled, unless the request says otherwise."""
STEPS_PER_KIND = 2
"""Steps of progress on each device kind: judging and measuring."""
SAME_FILE = 0.9
"""The least agreement with the model itself of the same file in the same precision: rounding
decides between answers that are as good, and of few rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A variant with its accuracy, and its profile on one device kind."""

    variant: Variant
    path: Path
    profile: Profile
    known: bool = False
    """Whether it was measured before, and comes from the build cache."""


class Measuring:
    """Measures all variants that were built of one version, on one device kind."""

    def __init__(
        self,
        bench: Workbench,
        meter: Meter,
        folder: Path,
        *,
        limits: MeasureLimits,
        thoroughness: Thoroughness = Thoroughness.AUTO,
        history: History | None = None,
        fewer_threads: bool = True,
    ) -> None:
        """``folder`` is for scores; ``history`` is what is known of other models."""
        self._bench = bench
        self._meter = meter
        self._scores = folder / "reference.npy"
        every = thread_counts(bench.kind)
        self._threads = every if fewer_threads else every[:1]
        self._limits = limits
        self._slowest_ms = 1_000 * limits.slowest_batch_s
        self._sizes = tuple(s for s in sorted(limits.batch_sizes) if s <= limits.useful_above)
        self._thoroughness = thoroughness
        self._history = history
        self._skipped: list[SkippedVariant] = []
        self._file: Digest | None = None
        """That of the model itself."""
        self._otherwise: dict[str, str] = {}
        """Runtimes that compute something else of that file, and in which sentence."""
        self.suspicion = ""
        """What would make the model itself better (``profiler.evaluation.suspicions``)."""

    def compare_with(self, reference: BuiltVariant) -> None:
        """Run the evaluation rows through the model itself, to compare others' answers with."""
        variant, keep = reference.variant, self._scores
        self._file = variant.artifact
        if variant.gpu != (self._bench.kind.gpu is not None):
            return
        if self._bench.judged_before(variant, keep=keep, reference=None) is None:
            telling = Telling(self._meter, 1, unit="rows", over="judged")
            telling.begin(f"running {variant.name}, which others are compared with")
            self._bench.judge(
                variant, reference.path, keep=keep, reference=None, announce=telling.told
            )
            self._bench.close(variant)

    def measure(
        self, built: Sequence[BuiltVariant], judged: Iterable[Variant] = ()
    ) -> tuple[list[Measured], list[SkippedVariant]]:
        """What could be measured, and what could not.

        ``judged`` are the same variants with the accuracy that another device kind has given.

        Raises:
            InvalidArtifact: the model itself, the first of them, failed.
        """
        self._skipped = []
        self._judging = Telling(self._meter, len(built), unit="rows", over="judged")
        known = {variant.name: variant for variant in judged}
        ready = [one for each in built if (one := self._judged(each, known)) is not None]
        self._leave_out_too_slow(ready)
        measured = self._sampled(ready) if self._wants_sampling(ready) else self._in_full(ready)
        return measured, self._skipped

    # -- accuracy ---------------------------------------------------------------------------------

    def _judged(
        self, built: BuiltVariant, known: Mapping[VariantName, Variant]
    ) -> BuiltVariant | None:
        """The variant with its accuracy, its largest batch timed once; None if it failed."""
        variant, bench = built.variant, self._bench
        first = built.kind == REFERENCE
        keep = self._scores if first else None
        reference = None if first else self._scores
        judged_elsewhere = known.get(variant.name)
        before = None
        if judged_elsewhere is None:
            before = bench.judged_before(variant, keep=keep, reference=reference)
        message = f"judging {variant.name} on {bench.kind.name}"
        if before is not None:
            message = f"{variant.name} was judged before, taken from {bench.folder}"
        self._meter.begin("measure", message)
        self._judging.begin(message)
        try:
            if judged_elsewhere is not None:
                variant = judged_elsewhere
            else:
                judgement = before or bench.judge(
                    variant,
                    built.path,
                    keep=keep,
                    reference=reference,
                    announce=self._judging.told,
                )
                variant = judged(variant, judgement, first=first)
                self.suspicion = judgement.suspicion or self.suspicion
            if first:
                self._file = variant.artifact
            self._refuse_otherwise(variant)
            self._time_largest(variant, built.path)
        except InvalidArtifact as error:
            self._failed(built, error)
            return None
        finally:
            self._judging.end(worked=before is None and judged_elsewhere is None)
        return replace(built, variant=variant)

    def _refuse_otherwise(self, variant: Variant) -> None:
        """Refuse what a runtime makes of the model's own file where in full precision that is
        something else: some implement an operator of an old opset as it is in a newer one.

        Raises:
            InvalidArtifact: it is.
        """
        if variant.artifact != self._file:
            return
        agreement, runtime = variant.agreement, variant.runtime
        exact = variant.precision is Precision.FP32
        if exact and agreement is not None and agreement < SAME_FILE:
            self._otherwise[runtime] = (
                f"{runtime} computes something else of the model's file: in full precision,"
                f" {accuracy_text(agreement)} of the rows are answered as by the model itself"
            )
        if runtime in self._otherwise:
            raise InvalidArtifact(self._otherwise[runtime])

    def _time_largest(self, variant: Variant, path: Path) -> None:
        """Have an idea of its latency at the largest batch that can be run; of a slow variant at
        the largest that is not too slow to be profiled.

        From above, as long as memory is short: that is soon found. A batch that does not end takes
        all the time that a trial may, so after one of these it is tried from below.

        Raises:
            InvalidArtifact: it failed.
        """
        bench, sizes = self._bench, self._sizes
        bench.time(variant, path, sizes[0])
        one_ms = bench.samples(variant)[sizes[0]].point.p50_ms
        if one_ms * sizes[-1] / sizes[0] <= self._slowest_ms:
            for size in reversed(sizes):
                if bench.time(variant, path, size):
                    return
                found = bench.too_much(variant)
                if found is not None and found.time_s is not None:
                    break
        for size in sizes[1:]:
            fits = bench.time(variant, path, size)
            if not fits or bench.samples(variant)[size].point.p50_ms > self._slowest_ms:
                return

    def _leave_out_too_slow(self, ready: Sequence[BuiltVariant]) -> None:
        """Batch sizes at which all variants are too slow, or that one cannot run, are not
        sampled."""
        quick = [
            size
            for one in ready
            for size, sample in self._bench.samples(one.variant).items()
            if size in self._sizes and sample.point.p50_ms <= self._slowest_ms
        ]
        largest = max(quick, default=self._sizes[0])
        too_much = (self._bench.too_much(one.variant) for one in ready)
        below = min((found.batch_size for found in too_much if found), default=largest + 1)
        self._sizes = tuple(size for size in self._sizes if size <= largest and size < below)

    def _failed(self, built: BuiltVariant, error: InvalidArtifact) -> None:
        """Go on without a variant. The model itself cannot be missing."""
        if built.kind == REFERENCE:
            raise InvalidArtifact(error.message) from error
        name = built.variant.name
        self._skipped.append(SkippedVariant(name=name, reason=_reason(built.variant, error)))
        # It was to be measured yet.
        self._meter.expect(-1)

    # -- in full ----------------------------------------------------------------------------------

    def _wants_sampling(self, ready: Sequence[BuiltVariant]) -> bool:
        if self._thoroughness is Thoroughness.AUTO:
            return sum(self._full_s(one) for one in ready) > FULL_S
        return self._thoroughness is Thoroughness.SAMPLED

    def _full_s(self, built: BuiltVariant) -> float:
        """About how long measuring a variant in full takes: a batch's time goes with its rows."""
        limits, timed = self._limits, self._bench.samples(built.variant)
        size = max((s for s in timed if s <= self._sizes[-1]), default=min(timed))
        largest_s = timed[size].point.p50_ms * self._sizes[-1] / size / 1_000
        return sum(
            max(limits.point_s, limits.min_runs * largest_s * share * max(self._threads) / threads)
            for threads in self._threads
            for share in (size / self._sizes[-1] for size in self._sizes)
        )

    def _in_full(self, ready: Sequence[BuiltVariant]) -> list[Measured]:
        parts = len(ready) * len(self._threads)
        telling = Telling(self._meter, parts, unit="batch sizes", over="measured")
        measured: list[Measured] = []
        for one in ready:
            try:
                measured += self._one_in_full(one, telling)
            except InvalidArtifact as error:
                self._failed(one, error)
        return measured

    def _one_in_full(self, built: BuiltVariant, telling: Telling) -> list[Measured]:
        """A variant, and those with fewer threads that are better at something."""
        bench, path = self._bench, built.path
        siblings = [self._with(built.variant, threads) for threads in self._threads]
        known = [bench.measured_before(one, path) for one in siblings]
        message = f"measuring {built.variant.name} on {bench.kind.name}"
        if all(known):
            message = f"{built.variant.name} was measured before, taken from {bench.folder}"
        self._meter.begin("measure", message)
        found: list[Measured] = []
        for threads, one, before in zip(self._threads, siblings, known, strict=True):
            if not before:
                words = f"{message}: {counted(threads, 'thread')}"
                self._meter.say("measure", words)
                telling.begin(words)
            profile = bench.measure(one, path, telling.told)
            telling.end(worked=not before)
            noted = self._noted(one, one)
            found.append(Measured(variant=noted, path=path, profile=profile, known=before))
        return undominated(found)

    def _noted(self, variant: Variant, like: Variant) -> Variant:
        """The variant with a word on batch sizes that ``like`` could not run."""
        found = self._bench.too_much(like)
        if found is None:
            return variant
        said = f"{counted(found.batch_size, 'row')} at once and more {found.reason}: left out"
        return with_note(variant, said)

    def _with(self, variant: Variant, threads: int) -> Variant:
        return variant if threads == self._threads[0] else with_threads(variant, threads)

    # -- sampled ----------------------------------------------------------------------------------

    def _sampled(self, ready: Sequence[BuiltVariant]) -> list[Measured]:
        """Measure what says most of the grid, and predict the rest."""
        by_kind = {one.kind: one for one in ready}
        space = Space(kinds=tuple(by_kind), threads=self._threads, batch_sizes=self._sizes)
        search = Search(space, history=self._history)
        # The largest batch of each was timed once when it was judged. The last ones still run.
        for kind, one in reversed(by_kind.items()):
            self._meter.say("measure", f"timing the largest batch of {one.variant.name}")
            self._sample(search, space.largest(kind), one)
        self._meter.expect(search.left - len(ready))
        done, wanted = 0, search.left
        telling = Telling(self._meter, 1, unit="points", over="measured")
        while (chosen := search.next()) is not None:
            one = by_kind[chosen.kind]
            what = f"{counted(chosen.threads, 'thread')}, {counted(chosen.batch_size, 'row')}"
            if self._bench.timed_before(
                self._with(one.variant, chosen.threads), one.path, chosen.batch_size
            ):
                what += ", as it was timed before"
            telling.begin(f"sampling {one.variant.name}: {what}")
            self._meter.begin("measure", telling.words(done, wanted))
            done += 1
            self._sample(search, chosen, one)
        self._meter.expect(-search.left)
        surface, bench = search.surface(), self._bench
        unweighed: dict[VariantName, str] = {}
        # Those that still run first: the others would end their processes, to be started anew.
        for one in sorted(ready, key=lambda one: not bench.is_open(one.variant)):
            self._meter.say("measure", f"measuring what memory {one.variant.name} takes")
            points = self._usable(surface.points(one.kind, self._threads[0]))
            try:
                bench.weigh(one.variant, one.path, points)
            except InvalidArtifact as error:
                reason = _reason(one.variant, error)
                unweighed[one.variant.name] = f"memory is that of all trials together: {reason}"
        measured: list[Measured] = []
        for one in ready:
            siblings = [
                Measured(
                    variant=with_note(
                        self._noted(variant, one.variant), unweighed.get(one.variant.name, "")
                    ),
                    path=one.path,
                    profile=bench.profile(variant, points, one.variant),
                    known=not (bench.has_loaded(one.variant) or bench.has_loaded(variant)),
                )
                for threads in self._threads
                if (points := self._usable(surface.points(one.kind, threads)))
                for variant in (self._with(one.variant, threads),)
            ]
            measured += undominated(siblings) if siblings else []
        return measured

    def _sample(self, search: Search, chosen: Configuration, built: BuiltVariant) -> None:
        """Measure one configuration and tell the search, or that there is nothing to measure."""
        variant = self._with(built.variant, chosen.threads)
        try:
            point = self._bench.sample(variant, built.path, chosen.batch_size)
        except InvalidArtifact as error:
            found = self._bench.too_much(variant)
            if found is not None and chosen.batch_size >= found.batch_size:
                search.leave_out(chosen.kind, chosen.threads, above=found.batch_size - 1)
            elif chosen.threads == self._threads[0]:
                self._failed(built, error)
                search.leave_out(chosen.kind)
            else:
                search.leave_out(chosen.kind, chosen.threads)
        else:
            search.tell(chosen, point)

    def _usable(self, points: tuple[LatencyPoint, ...]) -> tuple[LatencyPoint, ...]:
        """Without batches that are too slow; one row always is profiled."""
        return tuple(p for i, p in enumerate(points) if not i or p.p50_ms <= self._slowest_ms)


def judged(variant: Variant, judgement: Judgement, *, first: bool) -> Variant:
    """The variant with what its answers are worth; the first is what the others agree with."""
    return replace(
        variant,
        accuracy=judgement.accuracy,
        accuracy_rows=judgement.rows,
        agreement=1.0 if first else judgement.agreement,
        note=with_note(variant, judgement.note).note,
        answered=tuple(judgement.answered),
        found=judgement.found_pairs,
    )


def with_note(variant: Variant, said: str) -> Variant:
    """The variant with one more note, if anything is said."""
    return replace(variant, note="; ".join(filter(None, (variant.note, said))))


def _reason(variant: Variant, error: InvalidArtifact) -> str:
    """Why a variant failed, without its name."""
    return error.message.removeprefix(f"{variant.name}: ")


def undominated(siblings: list[Measured]) -> list[Measured]:
    """The first, which has all threads, and those that none of the siblings dominates.

    They differ in threads only: one that is worse at everything is left out.
    """
    beaten = dominated([one.variant for one in siblings], [one.profile for one in siblings])
    return [
        one
        for one in siblings
        if one is siblings[0] or (one.profile.device_kind, one.variant.name) not in beaten
    ]
