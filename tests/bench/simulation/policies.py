"""Policies compared on the same queries: ``python -m tests.bench.simulation.policies``.

About twenty minutes a catalog, most of it the solver of ``proteus``; ``--quick`` takes about five
and says little. The measured catalog and the tweet stream are read from the directory that
MODELLESS_BENCH_DATA names; without it, the synthetic ones stand in. What the workloads are, and how
large: ``tests.bench.simulation.workloads``. ``--catalog mixed-speed`` and ``--catalog draws``
(``tests.bench.simulation.mixed_speed``) have slow and fast devices and a catalog for each seed:

    python -m tests.bench.simulation.policies --catalog draws --draws 30 --seed 0,1,2 --jobs 2 \\
        --objective accuracy --policies modelless,proteus,static-cheapest

Beside every result stands its regret: by how much it misses what no policy can beat on the same
queries (docs/decisions/0018-bound.md), in accuracy and cost for as many queries in time as it had;
under ``whole``, of the cost that is possible with whole devices.

Under ``cost`` the first minute, in which everything starts empty, is told apart: below the table
stands what was billed after it, and the least that anybody could be billed then, whatever was
before. ``--after 60,600,1800`` does so for more times, and ``--seconds 3600`` plays workloads
longer than ten minutes (but diurnal ones):

    python -m tests.bench.simulation.policies --objective cost --only steady --policies modelless \\
        --seconds 3600 --after 60,600,1800

``--no-bound`` leaves out what no policy can beat, which takes longer than most policies.

With ``--latency-error 0.7:1.5 --latency-noise 0.2`` devices take other times than the profiles say
that policies are told; ``--uncorrected`` shows what live correction contributes to ours.

Times of decisions and plans are processor time, and so are queries per second, so that they mean
the same when others compute as well.

Verdicts. Objective ``accuracy``, on the whole fleet: P* is the published policy with the fewest
violations (ties: higher accuracy). Ours has at most half of its violations or 0.1 %, whichever is
more, at an effective accuracy no more than 0.001 below, and no published policy is better in both.
Objective ``cost``: ours has at most 1 % violations at a cost no higher than that of the cheapest
published policy that keeps 1 % as well, and none violates and costs less. Objective ``energy``: the
first two of the joules for each query in time.

With ``--objective energy``, or ``--energy`` beside another one, the catalog says what devices and
batches take, and joules and grams of CO2 are counted. These figures are a synthetic workload made
of published TDPs and of assumptions, which ``tests.bench.planning.energies`` names; nothing of
them was measured.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from math import inf
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from planner.bounds.bound import Beside
from planner.policies.registry import POLICIES
from planner.simulate import bound, simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.types import Objective
from tests.bench.machine import describe
from tests.bench.simulation.cases import CATALOGS, Case, cases, made

OURS = "modelless"
AT_LEAST = 0.001
"""Violations that are never too many under ``accuracy``, and accuracy that is never missed."""
TOLERATED = 0.01
"""Violations that are not too many under ``cost``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy on one workload."""

    ground: str
    workload: str
    seed: int
    objective: Objective
    report: Report
    wall_s: float
    processor_s: float
    beside: Beside | None = None
    later_usd: Mapping[float, float] = field(default_factory=dict)
    """The least that is billed after so many seconds, for as many queries in time."""

    def row(self) -> str:
        found, missed = self.report, self.beside
        regret = ("", "", "", "")
        if missed is not None:
            regret = (
                f"{missed.regret_violation_ratio:.3%}",
                f"{missed.regret_accuracy:.4f}",
                f"{missed.regret_cost_ratio:.1%}",
                f"{missed.regret_whole_cost_ratio:.1%}",
            )
        energy = ""
        if (use := found.energy) is not None:
            grams = 0.0 if use.carbon_g is None else use.carbon_g
            idle = (use.idle_energy_j or 0.0) / max(use.energy_j or 0.0, 1e-9)
            energy = f" {joules_each(found):.3f} | {idle:.1%} | {grams:,.1f} |"
        return (
            f"| {found.policy:<16} | {found.violation_ratio:8.3%} | {regret[0]:>7} "
            f"| {found.late:>6,} | {found.rejected:>7,} "
            f"| {found.effective_accuracy:.4f} | {regret[1]:>6} "
            f"| {found.cost_usd:6.3f} | {regret[2]:>6} | {regret[3]:>6} "
            f"| {found.busy_ratio:5.1%} | {found.loads:>6,} | {found.evictions:>6,} "
            f"| {found.decision_us_p50:5.1f} | {found.decision_us_p99:5.0f} "
            f"| {found.plan_ms_p50:6.1f} | {found.plan_ms_p99:6.0f} "
            f"| {found.requests / self.processor_s:>7,.0f} |{energy}"
        )


HEAD = (
    "| policy           | violated | regret |   late | refused | accuracy | regret "
    "|   USD  | regret |  whole |  busy | "
    " loads | unload | µs p50 |   p99 | plan ms |   p99  | queries/s |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


HEAD_ENERGY = HEAD.replace("\n", " J/query | idle | g CO2 |\n") + "--:|--:|--:|"


def joules_each(report: Report) -> float:
    """For each query in time, of all that billed devices took; infinite where that is not known."""
    if report.energy is None or report.energy.energy_j is None or not report.in_time:
        return inf
    return report.energy.energy_j / report.in_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """How far devices are from the profiles: not at all, unless told otherwise."""

    latency_error: tuple[float, float] = (1.0, 1.0)
    latency_noise: float = 0.0
    latency_pause: float = 1.0
    live_correction: bool = True


RIGHT = Wrong()


def run(case: Case, objective: Objective, policy: str, wrong: Wrong = RIGHT) -> Run:
    """A policy on a case. The process may be another one: all of it follows from the arguments."""
    ground, workload, drawn = made(case)
    setting = setting_of(case, objective, wrong)
    gc.collect()
    gc.freeze()  # the trace is not looked through again and again
    began_s, used_s = time.perf_counter(), time.thread_time()
    report = simulate(setting, drawn.trace, policy, clock=time.thread_time)
    used_s = time.thread_time() - used_s
    wall_s = time.perf_counter() - began_s
    gc.unfreeze()
    return Run(
        ground=ground.name,
        workload=workload.name,
        seed=case.seed,
        objective=objective,
        report=report,
        wall_s=wall_s,
        processor_s=used_s,
    )


def setting_of(case: Case, objective: Objective, wrong: Wrong = RIGHT) -> Setting:
    ground, workload, _ = made(case)
    return Setting(
        catalog=ground.catalog,
        kinds=ground.kinds,
        objective=objective,
        seed=case.seed,
        tick_s=case.tick_s,
        failures_every_s=workload.failures_every_s,
        latency_error=wrong.latency_error,
        latency_noise=wrong.latency_noise,
        latency_pause=wrong.latency_pause,
        live_correction=wrong.live_correction,
    )


def beside_the_bound(
    case: Case,
    objective: Objective,
    runs: Sequence[Run],
    wrong: Wrong = RIGHT,
    after_s: Sequence[float] = (),
) -> list[Run]:
    """The runs of a case with what no policy can beat; under ``cost`` also of what is billed after
    these times."""
    trace = made(case)[2].trace
    setting = setting_of(case, objective, wrong)
    reports = [each.report for each in runs]
    apart_s = after_s if objective is Objective.COST else ()
    known = {each: bound(setting, trace, reports, beginning_s=each) for each in apart_s or (0.0,)}
    whole = next(iter(known.values()))
    return [
        replace(
            each,
            beside=whole.beside(each.report),
            later_usd={s: known[s].later_cost_usd(each.report.in_time) for s in apart_s},
        )
        for each in runs
    ]


# -- verdicts -----------------------------------------------------------------------------------


def verdicts(runs: Sequence[Run], objective: Objective) -> list[str]:
    """What the runs of one workload say of ours, a sentence each; misses begin with MISSED."""
    ours = next((r.report for r in runs if r.report.policy == OURS), None)
    published = [r.report for r in runs if r.report.policy != OURS]
    if ours is None or not published:
        return []
    if objective is Objective.ACCURACY:
        return _by_accuracy(ours, published)
    return (_by_energy if objective is Objective.ENERGY else _by_cost)(ours, published)


def _by_accuracy(ours: Report, published: Sequence[Report]) -> list[str]:
    best = min(published, key=lambda r: (r.violation_ratio, -r.effective_accuracy))
    most = max(best.violation_ratio / 2, AT_LEAST)
    least = best.effective_accuracy - AT_LEAST
    better = [
        r.policy
        for r in published
        if r.violation_ratio < ours.violation_ratio
        and r.effective_accuracy > ours.effective_accuracy
    ]
    return [
        _said(
            ours.violation_ratio <= most,
            f"violations {ours.violation_ratio:.3%}, at most {most:.3%} (P* is {best.policy} "
            f"with {best.violation_ratio:.3%})",
        ),
        _said(
            ours.effective_accuracy >= least,
            f"accuracy {ours.effective_accuracy:.4f}, at least {least:.4f}",
        ),
        _said(not better, f"better in both: {', '.join(better) or 'none'}"),
    ]


def _by_cost(ours: Report, published: Sequence[Report]) -> list[str]:
    keep = [r for r in published if r.violation_ratio <= TOLERATED]
    said = [
        _said(
            ours.violation_ratio <= TOLERATED,
            f"violations {ours.violation_ratio:.3%}, at most {TOLERATED:.0%}",
        )
    ]
    if keep:
        cheapest = min(keep, key=lambda r: r.cost_usd)
        text = f"cost {ours.cost_usd:.3f} USD, at most {cheapest.cost_usd:.3f} ({cheapest.policy})"
        said.append(_said(ours.cost_usd <= cheapest.cost_usd, text))
    else:
        said.append(f"ok      cost {ours.cost_usd:.3f} USD; no published policy keeps 1 %")
    better = [
        r.policy
        for r in published
        if r.violation_ratio < ours.violation_ratio and r.cost_usd < ours.cost_usd
    ]
    return [*said, _said(not better, f"better in both: {', '.join(better) or 'none'}")]


def _by_energy(ours: Report, published: Sequence[Report]) -> list[str]:
    said = [
        _said(
            ours.violation_ratio <= TOLERATED,
            f"violations {ours.violation_ratio:.3%}, at most {TOLERATED:.0%}",
        )
    ]
    keep = [r for r in published if r.violation_ratio <= TOLERATED]
    if not keep:
        return [*said, f"ok      joules {joules_each(ours):.3f}; no other policy keeps 1 %"]
    best = min(keep, key=joules_each)
    text = (
        f"joules {joules_each(ours):.3f} a query, at most {joules_each(best):.3f} ({best.policy})"
    )
    return [*said, _said(joules_each(ours) <= joules_each(best), text)]


def _said(reached: bool, text: str) -> str:
    return f"{'ok     ' if reached else 'MISSED '} {text}"


def summary(runs: Sequence[Run], objective: Objective) -> str:
    """A line for each workload with what each policy did, and how many verdicts were reached."""
    together: dict[tuple[str, str, int], list[Run]] = {}
    for each in runs:
        together.setdefault((each.ground, each.workload, each.seed), []).append(each)
    policies = list(dict.fromkeys(each.report.policy for each in runs))
    lines = [
        f"\nObjective {objective}: violated, accuracy (regret), USD (regret)\n",
        f"| workload, seed | bound | {' | '.join(policies)} |",
        "|---|--:|" + "--:|" * len(policies),
    ]
    said: list[list[str]] = []
    for (_, name, seed), found in together.items():
        least = next((f"{b.bound_violation_ratio:.2%}" for b in _missed(found)), "")
        cells = (_cell(each) for each in found)
        lines.append(f"| {name}, {seed} | {least} | {' | '.join(cells)} |")
        said.append(verdicts(found, objective))
    kept = [lines_ for lines_ in said if lines_]
    for what in zip(*kept, strict=True):
        reached = sum(1 for line in what if line.startswith("ok"))
        lines.append(f"{_rule(what[0])}: {reached} of {len(what)}")
    return "\n".join(lines)


def _missed(runs: Iterable[Run]) -> list[Beside]:
    return [each.beside for each in runs if each.beside is not None]


def _cell(each: Run) -> str:
    found, missed = each.report, each.beside
    if found.energy is not None:
        return f"{found.violation_ratio:.2%}, {joules_each(found):.2f} J, {found.cost_usd:.3f}"
    if missed is None:
        return f"{found.violation_ratio:.2%}, {found.effective_accuracy:.4f}, {found.cost_usd:.3f}"
    return (
        f"{found.violation_ratio:.2%}, {found.effective_accuracy:.4f} "
        f"({missed.regret_accuracy:.4f}), {found.cost_usd:.3f} ({missed.regret_cost_ratio:.1%})"
    )


def regrets(runs: Sequence[Run]) -> str:
    """By how much each policy misses the bound: the median and the worst of all workloads."""
    lines = [
        "\n| regret, median (worst) | violated | accuracy | USD |",
        "|---|--:|--:|--:|",
    ]
    for policy in dict.fromkeys(each.report.policy for each in runs):
        missed = _missed(each for each in runs if each.report.policy == policy)
        if not missed:
            continue
        violated = [each.regret_violation_ratio for each in missed]
        accuracy = [each.regret_accuracy for each in missed]
        usd = [each.regret_cost_ratio for each in missed]
        lines.append(
            f"| {policy} | {median(violated):.2%} ({max(violated):.2%}) "
            f"| {median(accuracy):.4f} ({max(accuracy):.4f}) "
            f"| {median(usd):.1%} ({max(usd):.1%}) |"
        )
    return "\n".join(lines)


FIRST_S = 60.0
"""Everything starts empty, and nobody knows the demand yet: this long is told apart."""


def later(each: Run, after_s: float) -> str:
    """What a policy violated and was billed after a time, its share of the whole included."""
    report, timeline = each.report, each.report.timeline
    if len(timeline) < 2:
        return ""
    step_s = timeline[1].start_s - timeline[0].start_s
    first = [one for one in timeline if one.start_s < after_s]
    usd = sum(one.usd_per_hour for one in first) * step_s / 3_600
    arrived = report.requests - sum(one.arrived for one in first)
    in_time = report.in_time - sum(one.in_time for one in first)
    violated = 1 - in_time / arrived if arrived else 0.0
    left_usd, least_usd = report.cost_usd - usd, each.later_usd.get(after_s, 0.0)
    beside = f", {left_usd / least_usd - 1:.1%} above {least_usd:.3f}" if least_usd > 0.0 else ""
    return (
        f"{report.policy}: the first {after_s:,.0f} s cost about {usd:.3f} USD; after them "
        f"{violated:.3%} violated, {left_usd:.3f} USD{beside}"
    )


def _rule(line: str) -> str:
    """What a verdict is about, without its numbers."""
    return line.removeprefix("MISSED").removeprefix("ok").split(maxsplit=1)[0] if line else line


# -- the command --------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    policies = asked.policies.split(",") if asked.policies else list(POLICIES)
    both = [Objective.ACCURACY, Objective.COST]
    objectives = [Objective(asked.objective)] if asked.objective else both
    energy = asked.energy or Objective.ENERGY in objectives
    seeds = [int(seed) for seed in asked.seed.split(",")]
    try:
        chosen = cases(
            asked.catalog, seeds, asked.only,
            quick=asked.quick, count=asked.draws, energy=energy, seconds=asked.seconds,
            tick_s=asked.tick_s,
        )  # fmt: skip
    except LookupError as error:
        sys.exit(str(error))
    low, _, high = asked.latency_error.partition(":")
    wrong = Wrong(
        latency_error=(float(low), float(high)),
        latency_noise=asked.latency_noise,
        latency_pause=asked.latency_pause,
        live_correction=not asked.uncorrected,
    )
    after_s = [float(each) for each in asked.after.split(",")]
    print(describe())
    runs: list[Run] = []
    missed = 0
    work = [(c, o, p) for c in chosen for o in objectives for p in policies]
    for (case, objective), some in groupby(_ran(work, asked.jobs, wrong), key=lambda each: each[0]):
        found = [each for _, each in some]
        if not asked.no_bound:
            found = beside_the_bound(case, objective, found, wrong, after_s)
        print(f"\n{case.title()}\n\nObjective {objective}\n\n{HEAD_ENERGY if energy else HEAD}")
        print("\n".join(each.row() for each in found), flush=True)
        if objective is Objective.COST:
            print("\n" + "\n".join(later(each, s) for each in found for s in after_s))
        said = verdicts(found, objective)
        print("\n" + "\n".join(said) if said else "", flush=True)
        missed += sum(1 for line in said if line.startswith("MISSED"))
        runs += found
    for objective in objectives:
        mine = [r for r in runs if r.objective is objective]
        print(summary(mine, objective) + "\n" + regrets(mine))
    print(f"\n{len(runs)} runs in {sum(r.wall_s for r in runs):.0f} s, {missed} verdicts missed")
    if asked.json:
        asked.json.write_text(json.dumps(_plain(runs), indent=1) + "\n")
    return 0


def _ran(
    work: Sequence[tuple[Case, Objective, str]], jobs: int, wrong: Wrong
) -> Iterable[tuple[tuple[Case, Objective], Run]]:
    """Each piece of work with its run, in order, in so many processes."""
    if jobs == 1:
        for case, objective, policy in work:
            yield (case, objective), run(case, objective, policy, wrong)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pending = [pool.submit(run, *each, wrong) for each in work]
        for (case, objective, _), done in zip(work, pending, strict=True):
            yield (case, objective), done.result()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation.policies")
    parser.add_argument(
        "--quick", action="store_true", help="about three minutes of simulated time"
    )
    parser.add_argument(
        "--seconds", type=int, help="of workloads that are ten minutes long, and of adverse ones"
    )
    parser.add_argument("--tick-s", type=float, default=10.0, help="between two plans")
    parser.add_argument("--after", default=f"{FIRST_S:g}", help="seconds told apart, by commas")
    parser.add_argument("--only", help="names of workloads, by commas")
    parser.add_argument("--policies", help="names of policies, by commas")
    parser.add_argument("--objective", choices=[o.value for o in Objective])
    parser.add_argument("--catalog", choices=CATALOGS, default="synthetic")
    parser.add_argument("--seed", default="0", help="one or several, by commas")
    parser.add_argument("--draws", type=int, default=30, help="how many random ones")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="processes")
    parser.add_argument("--latency-error", default="1:1", help="LOW:HIGH, as 0.7:1.5")
    parser.add_argument("--latency-noise", type=float, default=0.0, help="SIGMA, as 0.2")
    parser.add_argument("--latency-pause", type=float, default=1.0, help="TIMES, as 2.5")
    parser.add_argument("--energy", action="store_true", help="count joules, of assumed figures")
    parser.add_argument("--uncorrected", action="store_true", help="ours without live correction")
    parser.add_argument("--no-bound", action="store_true", help="not what no policy can beat")
    parser.add_argument("--json", type=Path, help="where to write all numbers")
    return parser


def _plain(runs: Iterable[Run]) -> list[dict[str, object]]:
    plain = []
    for each in runs:
        found = asdict(each.report)
        del found["timeline"]
        found |= found.pop("energy") or {}
        where = {
            "catalog": each.ground,
            "workload": each.workload,
            "seed": each.seed,
            "objective": each.objective,
        }
        missed = {} if each.beside is None else asdict(each.beside)
        if each.later_usd:
            missed["bound_later_cost_usd"] = {f"{s:g}": usd for s, usd in each.later_usd.items()}
        plain.append(
            {**where, **found, **missed, "wall_s": each.wall_s, "processor_s": each.processor_s}
        )
    return plain


if __name__ == "__main__":
    sys.exit(main())
