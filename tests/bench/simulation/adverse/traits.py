"""What is drawn of a workload that looks for a weakness: by kinds, each of which is odd in one way.

``KINDS`` has them by name. A kind changes a few of the traits that ``usual`` draws for all. Numbers
and kinds say which workload it is; nothing else is random.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from tests.bench.simulation.arrivals import Arrivals


class Course(StrEnum):
    """How the load goes."""

    STEADY = "steady"
    SWINGING = "swinging"
    JUMPING = "jumping"


class Floors(StrEnum):
    """Who asks for a least accuracy."""

    NOBODY = "nobody"
    ONE_TASK = "one task"
    """All queries of the task that is asked for most, for its second most accurate variant."""
    SOME = "some"
    """A third of each task's, for one of its three most accurate variants, in twice the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Of a workload and of what it runs on."""

    tasks: int
    variants: tuple[int, int]
    """Of a task: at least, at most."""
    devices: tuple[int, ...]
    """Of each kind, the quickest first."""
    spread: float
    """How many times as long the most accurate variant takes as the least accurate one."""
    accuracy: tuple[float, float]
    """Of the least accurate and of the most accurate variant."""
    further_row: tuple[float, ...]
    """Of each kind: what each further row takes, as a part of the first."""
    largest_batch: tuple[int, ...]
    """Of each kind."""
    slower: tuple[float, ...]
    """How many times as long a kind takes as the quickest, for the least accurate variant."""
    slower_still: tuple[float, ...]
    """The same for the most accurate one."""
    slo: tuple[float, float]
    """Of a task: how many times as long as one row of its middle variant on the quickest kind, at
    least and at most."""
    tight: bool = False
    """The SLO goes by the least accurate variant on the quickest kind instead."""
    skew: float
    """Weight of the task of rank r: ``r ** -skew``."""
    course: Course
    highest: float
    """Load at its peak, as a part of what the cheapest variants could serve."""
    lowest: float
    period_s: int
    """Of a swing, or of the longest stay at one level."""
    arrivals: Arrivals
    variation: float
    """Coefficient of variation of gamma gaps."""
    together: int = 1
    """So many equal queries come at once, in the mean."""
    floors: Floors = Floors.NOBODY
    qps: float
    """Queries per second at the peak, at least: all times are stretched to that."""
    memory: float | None = None
    """Of a device, as a part of what all variants take; None where all have room."""
    unlike: bool = False
    """What a variant takes follows from nothing: not from its accuracy, and not from what another
    kind takes."""

    @property
    def about(self) -> str:
        """In words."""
        kind = self.arrivals.value
        if self.arrivals is Arrivals.GAMMA:
            kind += f" {self.variation:.1f}"
        if self.together > 1:
            kind += f" of {self.together}"
        fleet = " + ".join(map(str, self.devices))
        memory = "all" if self.memory is None else f"{self.memory:.0%}"
        slo = "quickest" if self.tight else "middle"
        return (
            f"{self.tasks} tasks of {self.variants[0]} to {self.variants[1]} variants, {fleet} "
            f"devices with memory for {memory}, SLO {self.slo[0]:.1f} to {self.slo[1]:.1f} times "
            f"the {slo} variant, skew {self.skew:.1f}, {self.course} load {self.lowest:.2f} to "
            f"{self.highest:.2f} in {self.period_s} s, floors for {self.floors}, {kind}"
        )


def usual(number: int, random: np.random.Generator) -> Traits:
    """What is drawn for all kinds."""
    arrivals = tuple(Arrivals)[number % len(Arrivals)]
    course = tuple(Course)[number // len(Arrivals) % len(Course)]
    highest = float(random.uniform(0.2, 1.0))
    tasks = int(random.integers(3, 13))
    some = _devices(2, random)
    return replace(
        some,
        tasks=tasks,
        course=course,
        highest=highest,
        lowest=highest / float(np.exp(random.uniform(0.0, np.log(10.0)))),
        arrivals=arrivals,
    )


def _devices(kinds: int, random: np.random.Generator) -> Traits:
    """Traits with so many kinds of devices; the others are drawn as well."""
    least = float(random.uniform(0.4, 0.85))
    slower = [1.0, *np.exp(random.uniform(0.0, np.log(4.0), kinds - 1))]
    still = [1.0, *np.exp(random.uniform(0.0, np.log(6.0), kinds - 1))]
    few = int(random.integers(2, 5))
    tightest = float(np.exp(random.uniform(np.log(2.5), np.log(12.0))))
    return Traits(
        tasks=1,
        variants=(few, few + int(random.integers(1, 4))),
        devices=tuple(map(int, random.integers(2, 9, kinds))),
        spread=float(np.exp(random.uniform(np.log(2.0), np.log(20.0)))),
        accuracy=(least, float(random.uniform(least + 0.05, 1.0))),
        further_row=tuple(map(float, random.choice([0.1, 0.3, 0.6, 1.0], kinds))),
        largest_batch=tuple(map(int, random.choice([1, 4, 8, 16, 32], kinds))),
        slower=tuple(map(float, slower)),
        slower_still=tuple(float(a * b) for a, b in zip(slower, still, strict=True)),
        slo=(tightest, tightest * float(random.uniform(1.0, 3.0))),
        skew=float(random.uniform(0.0, 1.5)),
        course=Course.STEADY,
        highest=1.0,
        lowest=1.0,
        period_s=int(random.integers(20, 100)),
        arrivals=Arrivals.POISSON,
        variation=float(random.uniform(1.5, 4.0)),
        qps=float(np.exp(random.uniform(np.log(15.0), np.log(200.0)))),
    )


Odd = Callable[[Traits, np.random.Generator], Traits]
"""Makes traits odd in one way."""


def _few_variants(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, variants=(2, 3))


def _many_variants(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, variants=(12, 12))


def _one_task(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, tasks=1)


def _many_tasks(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, tasks=40)


def _fleet(given: Traits, of: Traits) -> Traits:
    """As given, on another one's devices."""
    return replace(
        given,
        devices=of.devices,
        further_row=of.further_row,
        largest_batch=of.largest_batch,
        slower=of.slower,
        slower_still=of.slower_still,
    )


def _one_device(given: Traits, random: np.random.Generator) -> Traits:
    return replace(_fleet(given, _devices(1, random)), devices=(1,), tasks=min(given.tasks, 6))


def _one_kind(given: Traits, random: np.random.Generator) -> Traits:
    return _fleet(given, _devices(1, random))


def _three_kinds(given: Traits, random: np.random.Generator) -> Traits:
    return _fleet(given, _devices(3, random))


def _tight(given: Traits, random: np.random.Generator) -> Traits:
    nearest = float(random.uniform(1.05, 2.0))
    return replace(given, tight=True, slo=(nearest, nearest * float(random.uniform(1.0, 1.5))))


def _loose(given: Traits, random: np.random.Generator) -> Traits:
    nearest = float(random.uniform(20.0, 60.0))
    return replace(given, slo=(nearest, nearest * float(random.uniform(1.0, 3.0))))


def _skewed(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, skew=float(random.uniform(2.0, 4.0)), tasks=max(given.tasks, 5))


def _jumping(given: Traits, random: np.random.Generator) -> Traits:
    return replace(
        given,
        course=Course.JUMPING,
        period_s=int(random.integers(3, 26)),
        lowest=0.05,
        highest=float(random.uniform(0.7, 1.3)),
    )


def _one_floor(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, floors=Floors.ONE_TASK, tasks=max(given.tasks, 2))


def _some_floors(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, floors=Floors.SOME)


def _together(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, together=int(random.integers(3, 25)))


def _short_memory(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, memory=float(random.uniform(0.1, 0.5)))


def _overloaded(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, highest=float(random.uniform(1.1, 2.0)))


def _unlike(given: Traits, random: np.random.Generator) -> Traits:
    return replace(given, unlike=True)


KINDS: Mapping[str, Odd] = MappingProxyType(
    {
        "few": _few_variants,
        "many": _many_variants,
        "task": _one_task,
        "tasks": _many_tasks,
        "device": _one_device,
        "kind": _one_kind,
        "kinds": _three_kinds,
        "tight": _tight,
        "loose": _loose,
        "skewed": _skewed,
        "jumping": _jumping,
        "floor": _one_floor,
        "floors": _some_floors,
        "together": _together,
        "memory": _short_memory,
        "overloaded": _overloaded,
        "unlike": _unlike,
    }
)
"""By name: few or many variants of a task; one task or forty; one device, one or three kinds of
them; SLOs near what a row takes, or far from it; one task that is asked for by nearly all; a load
that jumps; a floor that one task's queries ask for, or some of all; equal queries that come at
once; memory for few variants; more than can be served; latencies that follow from nothing."""


def traits(kind: str, number: int) -> Traits:
    """Those of a workload.

    Raises:
        KeyError: there is no such kind.
    """
    names: Sequence[str] = tuple(KINDS)
    random = np.random.default_rng((number, names.index(kind), 23))
    return KINDS[kind](usual(number, random), random)
