"""What a search for the best configurations finds by measuring a fifth of them.

Run with ``python -m tests.bench.profiling.search`` from the repository's root. For each model, the
space is every variant that can be built here x threads x batch size:

* a search that knows nothing of other models, and one that knows what the searches of the other
  models have measured;
* every configuration, in turns: the truth;
* for each latency SLO that something meets, the measured configuration that the search would choose
  and the best one, measured again, in turns. Regret is 1 - throughput(chosen) / throughput(best).
  Both meet an SLO by their p95, as they do in planning; throughput is by p50.

Prediction errors are of the configurations that the search did not measure, against the truth;
``within 1.64 sd`` should be 90 %.

``--record FILE`` keeps the truth. ``--replay FILE`` measures nothing and lets searches run on what
was kept, and what they could be without their parts (``--designs``): seconds instead of half an
hour.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from profiler.sampling.costmodel import CostModel
from profiler.sampling.latency_surface import LatencySurface, throughput
from profiler.sampling.prior import History
from profiler.sampling.search import SLOS_MS, Search
from profiler.sampling.space import Configuration
from tests.bench import machine
from tests.bench.profiling import designs, grids
from tests.bench.profiling.grids import Grid, Stand, Subject
from variants.errors import InvalidArtifact
from variants.zoo.digits import MODELS

SEEDS = 10
"""Draws of each random design."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a search, or something else, made of one model."""

    share: float
    """Of the space, that was measured."""
    regrets: Mapping[float, float]
    """By SLO in ms, of those that something meets."""
    errors: tuple[float, ...]
    """Relative, of what was predicted."""
    deviations: tuple[float, ...]
    """The same in predicted sd of the logarithm."""
    seconds: float = 0.0
    overhead_ms: float = 0.0
    """Of the search itself, for each measurement."""


def judged(found: LatencySurface, truth: Grid, regrets: Mapping[float, float]) -> Outcome:
    predicted = [each for each in found.at if not found.measured(each) and each in truth]
    ratios = [found.at[each].p50_ms / truth[each].p50_ms for each in predicted]
    return Outcome(
        share=sum(map(found.measured, found.at)) / len(truth),
        regrets=regrets,
        errors=tuple(abs(ratio - 1) for ratio in ratios),
        deviations=tuple(
            float(abs(np.log(ratio))) / found.at[each].error
            for each, ratio in zip(predicted, ratios, strict=True)
        ),
    )


def choices(
    found: LatencySurface, truth: Grid
) -> dict[float, tuple[Configuration | None, Configuration]]:
    """By SLO that something meets: what the search would choose, and what is best."""
    whole = LatencySurface(at=truth)
    return {
        slo_ms: (found.best(slo_ms), best)
        for slo_ms in SLOS_MS
        if (best := whole.best(slo_ms)) is not None
    }


def recorded_regrets(found: LatencySurface, truth: Grid) -> dict[float, float]:
    """As the truth has it, nothing measured again."""
    return {
        slo_ms: 1.0 if chosen is None else 1 - throughput(truth[chosen]) / throughput(truth[best])
        for slo_ms, (chosen, best) in choices(found, truth).items()
    }


def measured_regrets(subject: Subject, found: LatencySurface, truth: Grid) -> dict[float, float]:
    """Each pair measured again, in turns."""
    regrets: dict[float, float] = {}
    known: dict[tuple[Configuration, Configuration], float] = {}
    for slo_ms, (chosen, best) in choices(found, truth).items():
        if chosen is None or chosen == best:
            regrets[slo_ms] = float(chosen is None)
            continue
        if (chosen, best) not in known:
            with Stand(subject) as stand:
                again = stand.measure_all([chosen, best])
            known[chosen, best] = 1 - throughput(again[chosen]) / throughput(again[best])
        regrets[slo_ms] = known[chosen, best]
    return regrets


# -- measuring ------------------------------------------------------------------------------------


class Run:
    """One search that measures."""

    def __init__(self, subject: Subject, threads: tuple[int, ...], history: History) -> None:
        search = Search(subject.space(threads), history=history)
        began_s, asked_s = time.perf_counter(), 0.0
        with Stand(subject) as stand:
            while True:
                asking_s = time.perf_counter()
                chosen = search.next()
                asked_s += time.perf_counter() - asking_s
                if chosen is None:
                    break
                try:
                    search.tell(chosen, stand.measure(chosen))
                except InvalidArtifact:
                    search.leave_out(chosen.kind, chosen.threads, above=chosen.batch_size - 1)
        self.seconds = time.perf_counter() - began_s
        self.measured = {each: point.p50_ms for each, point in search.measured.items()}
        self.overhead_ms = 1000 * asked_s / max(1, len(self.measured))
        self.surface = search.surface()

    def outcome(self, subject: Subject, truth: Grid) -> Outcome:
        regrets = measured_regrets(subject, self.surface, truth)
        found = judged(self.surface, truth, regrets)
        return Outcome(
            share=found.share,
            regrets=regrets,
            errors=found.errors,
            deviations=found.deviations,
            seconds=self.seconds,
            overhead_ms=self.overhead_ms,
        )


def measure(subjects: Sequence[Subject], threads: tuple[int, ...], record: Path | None) -> None:
    truths: dict[str, Grid] = {}
    alone: dict[str, Run] = {}
    for subject in subjects:
        space = subject.space(threads)
        alone[subject.name] = Run(subject, threads, {})
        began_s = time.perf_counter()
        with Stand(subject) as stand:
            truths[subject.name] = stand.measure_all(space.configurations)
        took_s = time.perf_counter() - began_s
        print(
            f"{subject.name}: {len(subject.specs)} kinds, {len(truths[subject.name])} of "
            f"{len(space)} configurations measured in {took_s:.0f} s, "
            f"a fifth in {alone[subject.name].seconds:.0f} s",
            flush=True,
        )
        if record is not None:
            grids.write(record, truths, machine.describe())
    head("Without history")
    found = {each.name: alone[each.name].outcome(each, truths[each.name]) for each in subjects}
    report(found)
    if len(subjects) > 1:
        head("With the measurements of the other models' searches")
        found = {}
        for subject in subjects:
            others = {name: run.measured for name, run in alone.items() if name != subject.name}
            run = Run(subject, threads, others)
            found[subject.name] = run.outcome(subject, truths[subject.name])
        report(found)


# -- replaying ------------------------------------------------------------------------------------


def replayed(truth: Grid, history: History) -> tuple[LatencySurface, Outcome]:
    """A search on a recorded grid."""
    search = Search(grids.space_of(truth), history=history)
    asked_s = -time.perf_counter()
    while (chosen := search.next()) is not None:
        if chosen in truth:
            search.tell(chosen, truth[chosen])
        else:
            search.leave_out(chosen.kind, chosen.threads, above=chosen.batch_size - 1)
    asked_s += time.perf_counter()
    found = search.surface()
    outcome = judged(found, truth, recorded_regrets(found, truth))
    return found, Outcome(
        share=outcome.share,
        regrets=outcome.regrets,
        errors=outcome.errors,
        deviations=outcome.deviations,
        overhead_ms=1000 * asked_s / max(1, len(search.measured)),
    )


def replay(truths: Mapping[str, Grid]) -> None:
    head("Without history")
    alone = {name: replayed(truth, {}) for name, truth in truths.items()}
    report({name: outcome for name, (_, outcome) in alone.items()})
    if len(truths) < 2:
        return
    head("With the measurements of the other models' searches")
    measured = {
        name: {each: point.p50_ms for each, point in found.at.items() if not point.error}
        for name, (found, _) in alone.items()
    }
    report(
        {
            name: replayed(truth, {other: measured[other] for other in truths if other != name})[1]
            for name, truth in truths.items()
        }
    )


def compare(truths: Mapping[str, Grid]) -> None:
    """Designs and models, each pooled over all models and ``SEEDS`` draws."""
    ways: dict[str, tuple[designs.Design, designs.Predictor]] = {
        "any, plain process": (designs.at_random, designs.PlainModel),
        "Latin hypercube, plain process": (designs.latin, designs.PlainModel),
        "any, our model": (designs.at_random, CostModel),
        "Latin hypercube, our model": (designs.latin, CostModel),
    }
    head("Pooled over models", "")
    for title, (design, model) in ways.items():
        line(
            title,
            [
                found(
                    truth,
                    designs.fixed(design, model, grids.space_of(truth), truth.__getitem__, seed),
                )
                for truth in truths.values()
                for seed in range(SEEDS)
            ],
        )
    models: dict[str, designs.Predictor] = {
        "search, plain process": designs.PlainModel,
        "search, our model": CostModel,
    }
    for title, model in models.items():
        line(
            title,
            [
                found(
                    truth, designs.searched(grids.space_of(truth), truth.__getitem__, model=model)
                )
                for truth in truths.values()
            ],
        )


def found(truth: Grid, surface: LatencySurface) -> Outcome:
    return judged(surface, truth, recorded_regrets(surface, truth))


# -- telling --------------------------------------------------------------------------------------


def head(title: str, first: str = "model") -> None:
    slos = "".join(f"{f'{slo_ms:g} ms':>8}" for slo_ms in SLOS_MS)
    print(f"\n{title}")
    print(
        f"{first:32}{'share':>7}   regret:{slos}{'median':>8}   "
        f"{'error p50':>10}{'p90':>8}{'in 1.64 sd':>12}{'s':>7}{'ms/ask':>8}"
    )


def report(outcomes: Mapping[str, Outcome]) -> None:
    for name, outcome in outcomes.items():
        line(name, [outcome])
    if len(outcomes) > 1:
        line("all", list(outcomes.values()))


def line(title: str, outcomes: Sequence[Outcome]) -> None:
    regrets = [regret for one in outcomes for regret in one.regrets.values()]
    errors = [error for one in outcomes for error in one.errors]
    inside = np.mean([deviation <= 1.64 for one in outcomes for deviation in one.deviations])
    cells = ""
    for slo_ms in SLOS_MS:
        here = [one.regrets[slo_ms] for one in outcomes if slo_ms in one.regrets]
        cells += f"{median(here):8.1%}" if here else f"{'-':>8}"
    print(
        f"{title:32}{max(one.share for one in outcomes):7.1%}          {cells}"
        f"{median(regrets):8.1%}   {np.quantile(errors, 0.5):10.1%}"
        f"{np.quantile(errors, 0.9):8.1%}{inside:12.1%}"
        f"{sum(one.seconds for one in outcomes):7.0f}"
        f"{np.mean([one.overhead_ms for one in outcomes]):8.0f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    every = ",".join([*MODELS, grids.RESNET])
    parser.add_argument("--models", default=every, help=f"of: {every}")
    parser.add_argument("--image", type=int, default=224, help="side of the ResNet's images")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, cores}))
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    parser.add_argument("--designs", action="store_true", help="with --replay: compare designs")
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    if arguments.replay:
        truths = {n: grid for n, grid in grids.read(arguments.replay).items() if n in names}
        replay(truths)
        if arguments.designs:
            compare(truths)
        return
    print(machine.describe())
    with tempfile.TemporaryDirectory() as work, machine.Others() as others:
        folder = Path(work)
        subjects = [grids.digits_subject(name, folder) for name in names if name in MODELS]
        if grids.RESNET in names:
            subjects.append(grids.resnet_subject(folder, arguments.image))
        measure(subjects, tuple(arguments.threads), arguments.record)
    if others.cores > machine.IDLE_CORES:
        print(f"NOT IDLE: others used {others.cores:.1f} cores")


if __name__ == "__main__":
    main()
