"""What was judged and timed before, of the same file on the same rows, kept in the build cache.

In a key is the machine as well: a measurement is true of where it was made.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from controlplane.building.build_cache import BuildCache
from controlplane.building.work_keys import key_of, measuring_tools
from profiler.evaluation.accuracy import Judgement
from profiler.sandbox.limits import MeasureLimits
from profiler.sandbox.measure import Weight
from profiler.sandbox.probe import Figures, TooMuch
from profiler.timing.statistics import Round, Sample
from variants.buckets import positions_axis
from variants.types import (
    DeviceKind,
    LatencyPoint,
    Profile,
    ProfileSource,
    Task,
    Variant,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was seen of a variant on a device kind so far."""

    samples: Mapping[int, Sample] = field(default_factory=dict)
    """By batch size."""
    figures: Figures | None = None
    """What loading it has cost."""
    weighed: Mapping[str, Weight] = field(default_factory=dict)
    """What serving takes, by the batch sizes that were served: ``1,2,4``."""
    profile: Profile | None = None
    """Once it was measured in full."""
    too_much: TooMuch | None = None
    """From which batch size on none could be run."""


class Notebook:
    """Of the variants of a task on one device kind of this machine."""

    def __init__(
        self,
        cache: BuildCache,
        task: Task,
        kind: DeviceKind,
        rows: str,
        limits: MeasureLimits,
        machine: str,
    ) -> None:
        """
        Args:
            rows: digest of the rows that variants are judged by and timed with.
            machine: its name.
        """
        self.folder = cache.root
        self._cache = cache
        self._task = task
        self._common = {
            "inputs": [asdict(spec) for spec in task.inputs],
            "outputs": [asdict(spec) for spec in task.outputs],
            "rows": rows,
            "kind": [kind.name, kind.cores, kind.gpu],
            "machine": machine,
        }
        self._limits = repr(limits)

    # -- accuracy ---------------------------------------------------------------------------------

    def judgement(
        self, variant: Variant, reference: str, keep: Path | None = None
    ) -> Judgement | None:
        """How good its answers were found.

        Args:
            reference: digest of the scores that they were compared with; empty: with none.
            keep: where the scores go that others are compared with.
        """
        found = self._cache.find(self._judged(variant, reference, keep), keep)
        return None if found is None else Judgement(**found.value)

    def note_judgement(
        self, variant: Variant, reference: str, judgement: Judgement, scores: Path | None = None
    ) -> None:
        self._cache.keep(self._judged(variant, reference, scores), asdict(judgement), scores)

    def _judged(self, variant: Variant, reference: str, scores: Path | None) -> str:
        return self._key(
            variant,
            what="judgement",
            metric=self._task.metric,
            along=positions_axis(self._task),
            reference=reference,
            has_scores=scores is not None,
            says="other outputs",  # what earlier releases have kept does not
        )

    # -- latency ----------------------------------------------------------------------------------

    def readings(self, variant: Variant) -> Readings:
        """What was seen of it; nothing, where nothing was kept."""
        found = self._cache.find(self._timed(variant))
        return Readings() if found is None else readings_of(found.value, variant)

    def note_readings(self, variant: Variant, readings: Readings) -> None:
        self._cache.keep(self._timed(variant), values_of(readings))

    def _timed(self, variant: Variant) -> str:
        return self._key(variant, what="readings", limits=self._limits)

    def _key(self, variant: Variant, **parts: object) -> str:
        return key_of(
            artifact=variant.artifact,
            runtime=variant.runtime,
            options=sorted(variant.options.items()),
            tools=measuring_tools(variant.runtime, gpu=variant.gpu),
            **self._common,
            **parts,
        )


def values_of(readings: Readings) -> dict[str, Any]:
    """As plain JSON values."""
    return {
        "samples": {str(size): sample.rounds for size, sample in readings.samples.items()},
        "figures": None if readings.figures is None else asdict(readings.figures),
        "weights": {served: list(one) for served, one in readings.weighed.items()},
        "profile": None if readings.profile is None else _measured(readings.profile),
        "too_much": None if readings.too_much is None else asdict(readings.too_much),
    }


def _measured(profile: Profile) -> dict[str, Any]:
    """What was measured, without what workers tell."""
    return {
        name: one for name, one in asdict(profile).items() if name not in ("busy", "busy_error")
    }


def readings_of(values: Mapping[str, Any], variant: Variant) -> Readings:
    """What ``values_of`` made plain values of."""
    samples = {
        int(size): Sample(int(size), tuple(Round(*map(tuple, one)) for one in rounds))
        for size, rounds in values["samples"].items()
    }
    figures, profile = values["figures"], values["profile"]
    # An earlier release did not keep these; without weights it is weighed again.
    too_much, weights = values.get("too_much"), values.get("weights")
    if weights is None:
        profile = None
    return Readings(
        samples=samples,
        figures=None if figures is None else Figures(**figures),
        weighed={served: Weight(*one) for served, one in (weights or {}).items()},
        profile=None if profile is None else _profile(profile, variant),
        too_much=None if too_much is None else TooMuch(**too_much),
    )


def _profile(values: Mapping[str, Any], variant: Variant) -> Profile:
    """It is of the same file, which may have had another name."""
    points = tuple(LatencyPoint(**point) for point in values["points"])
    found = Profile(**{**values, "points": points, "source": ProfileSource(values["source"])})
    return replace(found, task=variant.task, variant=variant.name)
