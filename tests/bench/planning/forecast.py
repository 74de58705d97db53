"""Forecasts of the next minute's mean rate, on two days of a public arrival series.

Run with ``python -m tests.bench.planning.forecast`` from the repository's root; ``--jobs 2`` uses
two cores. The series is ``twitter_rate.csv`` (columns second, requests) in the directory that
MODELLESS_BENCH_DATA names; without it there is nothing to measure.

``--swing`` needs no data: it counts how many windows hold under Poisson arrivals whose rate swings.

Rolling origin: every 10 seconds each forecaster is given the count of these 10 seconds and asked
for quantiles of the mean rate of the next 60. It has seen nothing but what came before. The first
two hours are not judged. The two gaps are neither shown, nor judged: an origin whose next minute
touches one is left out. Constants were chosen by the loss of the first day.
"""

import argparse
import csv
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import exp, pi, sqrt
from pathlib import Path
from statistics import NormalDist, median
from time import perf_counter

import numpy as np
import numpy.typing as npt

from planner.forecasting.forecast import Forecaster, adaptive
from profiler.learned_forecaster import LearnedForecaster, learn
from tests.bench.planning.forecasts.baselines import ewma, last_value, seasonal

STEP_S = 10
HORIZON_S = 60
LEVELS = (0.5, 0.9, 0.95, 0.99)
JUDGED = 0.95
WARM_S = 7_200
DAY_S = 86_400
TRAINING_EVERY_S = 10_800.0
"""Three times as long as by default, so that the whole takes minutes."""
GAP_S = 600
"""Zeros for longer than this are a gap in the series, not silence."""
TASK = "t"
SWING_S = 100
"""Period of the swing."""
BASELINES: Mapping[str, Callable[[], Forecaster[str]]] = {
    "last value": last_value,
    "EWMA 5 s": lambda: ewma(5.0),
    "EWMA 10 s": lambda: ewma(10.0),
    "EWMA 30 s": lambda: ewma(30.0),
    "EWMA 120 s": lambda: ewma(120.0),
    "seasonal, 1 h": lambda: seasonal(3_600.0),
    "seasonal, 2 h": lambda: seasonal(7_200.0),
    "seasonal, 1 day": lambda: seasonal(86_400.0),
}
OURS: Mapping[str, Callable[[], Forecaster[str]]] = {
    "adaptive": adaptive,
    "learned, no clock": lambda: LearnedForecaster(clock=False, training_every_s=TRAINING_EVERY_S),
    "learned": lambda: LearnedForecaster(training_every_s=TRAINING_EVERY_S),
}
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Requests in each second, and which seconds were observed."""

    counts: Array
    seen: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one forecaster said at each origin. Arrays are as long as there are origins."""

    name: str
    origins_s: Array
    actual: Array
    forecast: Array
    """(origins, levels)"""
    observe_us: float
    predict_us: float
    learn_s: tuple[float, ...]

    def loss(self, level: float, part: npt.NDArray[np.bool_]) -> float:
        """Mean pinball loss, in requests per second."""
        error = self.actual[part] - self.forecast[part, LEVELS.index(level)]
        return float(np.maximum(level * error, (level - 1.0) * error).mean())

    def coverage(self, level: float, part: npt.NDArray[np.bool_]) -> float:
        """The share of origins that stayed at or below the quantile: ``level`` if it is one."""
        return float((self.actual[part] <= self.forecast[part, LEVELS.index(level)]).mean())


def read(path: Path) -> Series:
    with path.open(newline="") as file:
        counts = np.array([float(row["requests"]) for row in csv.DictReader(file)])
    edges = np.flatnonzero(np.diff(np.r_[False, counts == 0.0, False].astype(np.int8)))
    seen = np.ones(len(counts), np.bool_)
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        if end - begin > GAP_S:
            seen[begin:end] = False
    return Series(counts=counts, seen=seen)


def rolled(name: str, forecaster: Forecaster[str], series: Series) -> Outcome:
    """Every ``STEP_S`` an observation, training if it is due, and a forecast."""
    origins, actual, forecasts = [], [], []
    observes_us, predicts_us, learns_s = [], [], []
    for now_s in range(STEP_S, len(series.counts) + 1, STEP_S):
        last = slice(now_s - STEP_S, now_s)
        if not series.seen[last].all():
            continue
        start = perf_counter()
        forecaster.observe(now_s, STEP_S, {TASK: float(series.counts[last].sum())})
        observes_us.append((perf_counter() - start) * 1e6)
        if isinstance(forecaster, LearnedForecaster) and (data := forecaster.training_data()):
            start = perf_counter()
            model = learn(data)
            learns_s.append(perf_counter() - start)
            if model:
                forecaster.adopt(model)
        coming = slice(now_s, now_s + HORIZON_S)
        if (
            now_s < WARM_S
            or now_s + HORIZON_S > len(series.counts)
            or not series.seen[coming].all()
        ):
            continue
        start = perf_counter()
        answer = forecaster.predict(LEVELS)[TASK]
        predicts_us.append((perf_counter() - start) * 1e6)
        origins.append(now_s)
        actual.append(series.counts[coming].mean())
        forecasts.append(answer)
    return Outcome(
        name=name,
        origins_s=np.array(origins, np.float64),
        actual=np.array(actual),
        forecast=np.array(forecasts),
        observe_us=median(observes_us),
        predict_us=median(predicts_us),
        learn_s=tuple(learns_s),
    )


def by_name(name: str, path: Path) -> Outcome:
    return rolled(name, {**BASELINES, **OURS}[name](), read(path))


def dispersion(series: Series) -> float:
    """Variance of a second's count, beside its mean, that no change of rate explains.

    Half the mean squared difference of neighbouring seconds: a rate that changes slowly cancels.
    The median over minutes, so that jumps do not count. 1 is Poisson.
    """
    ratios: list[float] = []
    for begin in range(0, len(series.counts) - 60, 60):
        minute = series.counts[begin : begin + 60]
        if series.seen[begin : begin + 60].all() and minute.mean() > 0:
            ratios.append(float(np.square(np.diff(minute)).mean() / 2 / minute.mean()))
    return median(ratios)


def noise_floor(level: float, actual: Array, spread: float) -> float:
    """Pinball loss of who knows the rate of every coming second, and only not how chance falls.

    A minute's mean is then normal with variance ``spread * rate / 60``, and the loss at the
    true quantile is its deviation times the normal density there. The rate is taken to be what
    the minute's mean was.
    """
    z = NormalDist().inv_cdf(level)
    density = exp(-z * z / 2) / sqrt(2 * pi)
    deviation = float(np.sqrt(spread * actual / HORIZON_S).mean())
    return density * deviation


def onsets(outcome: Outcome) -> npt.NDArray[np.bool_]:
    """Origins whose next minute has a mean at least 1.3 times that of the last one."""
    at = dict(zip(outcome.origins_s.tolist(), outcome.actual.tolist(), strict=True))
    before = [at.get(origin - HORIZON_S, np.nan) for origin in outcome.origins_s.tolist()]
    jumped: npt.NDArray[np.bool_] = outcome.actual > 1.3 * np.array(before)
    return jumped


def report(outcomes: Sequence[Outcome], series: Series) -> None:
    spread = dispersion(series)
    print(f"variance of a second's count / its mean, changes of rate left out: {spread:.2f}")
    first = outcomes[0].origins_s
    parts = {
        "first day": first <= DAY_S,
        "second day": first > DAY_S,
        "both days": np.ones(len(first), np.bool_),
    }
    for title, part in parts.items():
        known = [o for o in outcomes if o.name in BASELINES]
        best = min(known, key=lambda o: o.loss(JUDGED, part))
        reference = best.loss(JUDGED, part)
        print(f"\n{title}, {part.sum():,} origins; best baseline at {JUDGED}: {best.name}")
        heads = "".join(f"{f'loss {level}':>11}" for level in LEVELS)
        print(f"{'forecaster':20}{heads}{'to best':>9}" + "".join(f"{q:>8}" for q in LEVELS))
        for outcome in outcomes:
            losses = "".join(f"{outcome.loss(level, part):11.3f}" for level in LEVELS)
            ratio = outcome.loss(JUDGED, part) / reference
            covered = "".join(f"{outcome.coverage(level, part):8.3f}" for level in LEVELS)
            print(f"{outcome.name:20}{losses}{ratio:9.3f}{covered}")
        actual = outcomes[0].actual[part]
        floors = [noise_floor(level, actual, spread) for level in LEVELS]
        ratio = floors[LEVELS.index(JUDGED)] / reference
        print(f"{'noise floor':20}{''.join(f'{floor:11.3f}' for floor in floors)}{ratio:9.3f}")
        jumped = onsets(outcomes[0])
        print(f"of the loss at {JUDGED}, on origins before a jump ({(part & jumped).sum()}):")
        for outcome in outcomes:
            share = outcome.loss(JUDGED, part & jumped) * (part & jumped).sum()
            print(f"  {outcome.name:18}{share / outcome.loss(JUDGED, part) / part.sum():8.0%}")
    print(f"\n{'forecaster':20}{'observe µs':>11}{'predict µs':>11}{'learn s':>9}{'times':>7}")
    for o in outcomes:
        learns = f"{median(o.learn_s):9.2f}{len(o.learn_s):7}" if o.learn_s else ""
        print(f"{o.name:20}{o.observe_us:11.0f}{o.predict_us:11.0f}{learns}")


def swing(qps: float, seed: int) -> npt.NDArray[np.bool_]:
    """Whether the next minute's mean held, ``(origins, levels)``: an hour of Poisson arrivals whose
    rate is a cosine with a period of ``SWING_S`` between a sixth of ``qps`` and ``qps``, lowest
    first."""
    random = np.random.default_rng(seed)
    seconds = np.arange(3_600 + HORIZON_S)
    counts = random.poisson(qps * (7 / 12 - 5 / 12 * np.cos(2 * pi * seconds / SWING_S)))
    forecaster: Forecaster[str] = adaptive()
    held = []
    for now_s in range(STEP_S, 3_600 + 1, STEP_S):
        seen = float(counts[now_s - STEP_S : now_s].sum())
        forecaster.observe(now_s, STEP_S, {TASK: seen})
        actual = counts[now_s : now_s + HORIZON_S].mean()
        held.append([actual <= said for said in forecaster.predict(LEVELS)[TASK]])
    return np.array(held)


def report_swing(seeds: int) -> None:
    """Print the share of windows that held at 0.9 and 0.95, in parts of the hour."""
    parts = {"0-5 min": slice(0, 30), "5-10 min": slice(30, 60), "10-60 min": slice(60, 360)}
    heads = "".join(f"{name:>11}" for name in (*parts, "all"))
    print(f"windows that held under a swing, {seeds} seeds\n{'':14}{heads}")
    for qps in (5.0, 50.0, 500.0):
        held = np.array([swing(qps, seed) for seed in range(seeds)])
        for level in (0.9, JUDGED):
            column = held[:, :, LEVELS.index(level)]
            shares = [column[:, part].mean() for part in (*parts.values(), slice(None))]
            cells = "".join(f"{share:11.3f}" for share in shares)
            print(f"{f'{qps:.0f}/s, {level}':14}{cells}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.planning.forecast", description=__doc__
    )
    parser.add_argument("--jobs", type=int, default=1, help="forecasters at the same time")
    parser.add_argument("--only", help="names, separated by semicolons")
    parser.add_argument("--swing", type=int, metavar="SEEDS", help="only windows under a swing")
    arguments = parser.parse_args()
    if arguments.swing:
        report_swing(arguments.swing)
        return
    directory = os.environ.get("MODELLESS_BENCH_DATA")
    if not directory:
        sys.exit("MODELLESS_BENCH_DATA names no directory: nothing to measure")
    path = Path(directory) / "twitter_rate.csv"
    names = [*BASELINES, *OURS]
    if arguments.only:
        names = [*BASELINES, *arguments.only.split(";")]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        slowest_first = {name: pool.submit(by_name, name, path) for name in reversed(names)}
        outcomes = [slowest_first[name].result() for name in names]
    report(outcomes, read(path))


if __name__ == "__main__":
    main()
