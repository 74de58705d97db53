"""Workloads to compare policies on: a mix of queries whose rate and parts change over time.

The fleet is given, so the rate is scaled: at its peak it is 0.9 of what the fleet's cheapest
variants could serve (``tests.bench.simulation.capacity``), 1.2 in the flash crowd. The peak is that
of the rate without its Poisson noise.

Everything starts empty, and under ``cost`` even without devices, which take 30 s to come. So each
workload begins with half a minute at a fiftieth of its first rate and takes another minute to reach
it: what is lost before anybody can react is less than 0.2 % of the queries.
"""

import csv
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, cos, inf, pi
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.simulation.trace import Trace
from tests.bench.planning.catalogs import Ground
from tests.bench.simulation.arrivals import Arrivals, arrival_times
from tests.bench.simulation.capacity import Class, capacity_qps

PEAK = 0.9
CROWDED = 1.2
DURATION_S = 600
QUICK_S = 180
CALM = 0.02

Mix = Mapping[Class, float]
"""The weight of each class of queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A quiet beginning: ``CALM`` of the rate, then a rise to all of it."""

    calm_s: int = 30
    rise_s: int = 60

    def factor(self, second: int) -> float:
        """On the rate in a second."""
        return min(1.0, CALM + (1 - CALM) * max(0, second - self.calm_s) / self.rise_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A rate in each second, and of what."""

    name: str
    about: str
    load: Sequence[float]
    """In each second: the rate, as a part of what the cheapest variants could serve."""
    mix: Callable[[int], Mix]
    """By second. Few different ones."""
    failures_every_s: float | None = None
    arrivals: Arrivals = Arrivals.POISSON
    """Of each class, independently of the others; a mix that changes has to be Poisson."""
    variation: float = 1.0
    """Coefficient of variation of gamma gaps."""
    together: int = 1
    """So many equal queries come at once, in the mean; how many follows a geometric
    distribution."""
    opening: Opening = Opening()

    @property
    def duration_s(self) -> int:
        return len(self.load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A workload's queries on a ground."""

    trace: Trace
    capacity_qps: float
    """Of the mix at the peak."""
    peak_qps: float


def draw(workload: Workload, ground: Ground, seed: int) -> Drawn:
    """Poisson arrivals in each second, uniform within it, unless the workload says otherwise."""
    if workload.arrivals is not Arrivals.POISSON or workload.together > 1:
        return _streams(workload, ground, seed)
    random = np.random.default_rng(seed)
    capacities: dict[tuple[tuple[Class, float], ...], float] = {}
    seconds, counts, asked = [], [], []
    numbers: dict[Class, int] = {}
    peak_qps = peak_capacity = 0.0
    for second, load in enumerate(_opened(workload)):
        mix = workload.mix(second)
        key = tuple(mix.items())
        if key not in capacities:
            capacities[key] = capacity_qps(ground, mix)
        rate = load * capacities[key]
        if rate > peak_qps:
            peak_qps, peak_capacity = rate, capacities[key]
        weights = np.array(list(mix.values()))
        found = random.poisson(rate * weights / weights.sum())
        ids = [numbers.setdefault(each, len(numbers)) for each in mix]
        seconds.append(second)
        counts.append(int(found.sum()))
        asked.append(random.permutation(np.repeat(ids, found)))
    whole = np.repeat(seconds, counts)
    # Uniform in each second; sorting all of them at once keeps every second's to itself.
    arrival_s = np.sort(whole + random.random(len(whole)))
    return Drawn(
        trace=_trace(ground, tuple(numbers), arrival_s, np.concatenate(asked).astype(int)),
        capacity_qps=peak_capacity,
        peak_qps=peak_qps,
    )


def _streams(workload: Workload, ground: Ground, seed: int) -> Drawn:
    """A stream of its own for each class."""
    random = np.random.default_rng(seed)
    mix = workload.mix(0)
    capacity = capacity_qps(ground, mix)
    load = _opened(workload)
    total = sum(mix.values())
    times_s, which = [], []
    for number, weight in enumerate(mix.values()):
        rates = [each * capacity * weight / total / workload.together for each in load]
        found_s = arrival_times(workload.arrivals, workload.variation, rates, random)
        if workload.together > 1:
            found_s = np.repeat(found_s, random.geometric(1 / workload.together, len(found_s)))
        times_s.append(found_s)
        which.append(np.full(len(times_s[-1]), number))
    together_s = np.concatenate(times_s)
    order = np.argsort(together_s, kind="stable")
    return Drawn(
        trace=_trace(ground, tuple(mix), together_s[order], np.concatenate(which)[order]),
        capacity_qps=capacity,
        peak_qps=max(load) * capacity,
    )


def _trace(
    ground: Ground,
    classes: Sequence[Class],
    arrival_s: NDArray[np.float64],
    which: NDArray[np.int_],
) -> Trace:
    """Queries by arrival, ``which`` being the class of each."""
    tasks = ground.tasks
    task = np.array([tasks.index(c.task) for c in classes])
    latency_ms = np.array([c.latency_ms for c in classes], dtype=float)
    floor = np.array([-inf if c.floor is None else c.floor for c in classes])
    return Trace(
        tasks=tasks,
        arrival_s=array("d", arrival_s.tobytes()),
        task=array("q", task[which].astype("q").tobytes()),
        latency_ms=array("d", latency_ms[which].tobytes()),
        min_accuracy=array("d", floor[which].tobytes()),
        max_cost=array("d", [inf]) * len(which),
    )


def _opened(workload: Workload) -> list[float]:
    """The load of each second, with a quiet beginning."""
    opening = workload.opening
    return [each * opening.factor(second) for second, each in enumerate(workload.load)]


# -- the workloads ------------------------------------------------------------------------------


def workloads(
    ground: Ground, data: Path | None, *, quick: bool = False, seconds: int | None = None
) -> tuple[Workload, ...]:
    """All of them. The diurnal one is synthetic without data, and has a length of its own; the
    others have so many seconds."""
    seconds = seconds or (QUICK_S if quick else DURATION_S)
    even = _even(ground)
    return (
        Workload(
            name="steady",
            about="constant rate, all tasks alike",
            load=[PEAK] * seconds,
            mix=lambda _: even,
        ),
        _diurnal(even, data, quick),
        Workload(
            name="flash",
            about="well below capacity, then suddenly a fifth above it, for three minutes",
            load=_crowd(seconds),
            mix=lambda _: even,
        ),
        Workload(
            name="zipf",
            about="Zipf over the tasks, another one leads every 90 s",
            load=[PEAK] * seconds,
            mix=_shifting(ground, 90),
        ),
        Workload(
            name="mixed",
            about="tight SLOs, usual ones, and loose ones with a floor",
            load=[PEAK] * seconds,
            mix=_constant(_three_classes(ground)),
        ),
        Workload(
            name="failures",
            about="constant rate; a worker fails every minute and is away for 30 s",
            load=[PEAK] * seconds,
            mix=lambda _: even,
            failures_every_s=60.0,
        ),
    )


def _even(ground: Ground) -> Mix:
    return {Class(task, ms): 1.0 for task, ms in ground.latency_ms.items()}


def _constant(mix: Mix) -> Callable[[int], Mix]:
    return lambda _: mix


def _crowd(seconds: int) -> list[float]:
    begin, end = 2 * seconds // 5, 7 * seconds // 10
    return [CROWDED if begin <= second < end else 0.4 for second in range(seconds)]


def _shifting(ground: Ground, every_s: int) -> Callable[[int], Mix]:
    """Weights 1 / rank; at each shift, every task moves up and the first becomes the last."""
    tasks = ground.tasks
    mixes = [
        {
            Class(task, ground.latency_ms[task]): 1.0 / (1 + (number - lead) % len(tasks))
            for number, task in enumerate(tasks)
        }
        for lead in range(len(tasks))
    ]
    return lambda second: mixes[second // every_s % len(mixes)]


def _three_classes(ground: Ground) -> Mix:
    """Of each task: 30 % want an answer in two fifths of the usual time, 40 % in the usual, 30 % in
    thrice the usual by one of the three most accurate variants."""
    mix: dict[Class, float] = {}
    for task, ms in ground.latency_ms.items():
        mix[Class(task, 0.4 * ms)] = 0.3
        mix[Class(task, ms)] = 0.4
        mix[Class(task, 3.0 * ms, ground.accuracies(task)[-3])] = 0.3
    return mix


def _diurnal(even: Mix, data: Path | None, quick: bool) -> Workload:
    """The first day of the tweet stream, two seconds a minute; or a day made up, with a burst."""
    path = None if data is None else data / "twitter_rate.csv"
    if path is not None and path.exists():
        rates = minutes(path)
        about = "first day of a tweet stream, two seconds a minute"
    else:
        rates = [_made_up(minute) for minute in range(1_440)]
        about = "a day made up, with a burst, two seconds a minute"
    if quick:
        rates = rates[395 : 395 + QUICK_S // 2]  # its largest burst, after the beginning
    top = max(rates)
    load = [PEAK * rate / top for rate in rates for _ in range(2)]
    return Workload(name="diurnal", about=about, load=load, mix=lambda _: even)


def _made_up(minute: int) -> float:
    """Requests per second: 40 at night, 80 in the evening, 240 for the ten minutes after 450."""
    day = 60 - 20 * cos(2 * pi * (minute - 240) / 1_440)
    return 240.0 if 450 <= minute < 460 else day


def minutes(path: Path) -> list[float]:
    """Mean rate of each minute of the first day, without its gap."""
    with path.open(newline="") as file:
        rates = [float(row["requests"]) for row in csv.DictReader(file)][:86_400]
    minutes = [sum(rates[i : i + 60]) / 60 for i in range(0, 60 * ceil(len(rates) / 60), 60)]
    return [rate for rate in minutes if rate >= 1.0]
