"""Policies compared on the same queries: ``python -m tests.bench.simulation.policies``.

About twenty minutes a catalog, most of it the solver of ``proteus``; ``--quick`` takes about five
and says little. The measured catalog and the tweet stream are read from the directory that
MODELLESS_BENCH_DATA names; without it, the synthetic ones stand in. What the workloads are, and how
large: ``tests.bench.simulation.workloads``.

Times of decisions and plans are processor time, and so are queries per second, so that they mean
the same when others compute as well.

Verdicts. Objective ``accuracy``, on the whole fleet: P* is the published policy with the fewest
violations (ties: higher accuracy). Ours has at most half of its violations or 0.1 %, whichever is
more, at an effective accuracy no more than 0.001 below, and no published policy is better in both.
Objective ``cost``: ours has at most 1 % violations at a cost no higher than that of the cheapest
published policy that keeps 1 % as well.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from planner.policies.registry import POLICIES
from planner.simulate import simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.types import Objective
from tests.bench.machine import describe
from tests.bench.planning.catalogs import Ground, synthetic, timm
from tests.bench.simulation.workloads import Drawn, Workload, draw, workloads

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
    objective: Objective
    report: Report
    wall_s: float
    processor_s: float

    def row(self) -> str:
        found = self.report
        return (
            f"| {found.policy:<16} | {found.violation_ratio:8.3%} | {found.late:>6,} "
            f"| {found.rejected:>7,} | {found.effective_accuracy:.4f} | {found.cost_usd:6.3f} "
            f"| {found.busy_ratio:5.1%} | {found.loads:>6,} | {found.evictions:>6,} "
            f"| {found.decision_us_p50:5.1f} | {found.decision_us_p99:5.0f} "
            f"| {found.plan_ms_p50:6.1f} | {found.plan_ms_p99:6.0f} "
            f"| {found.requests / self.processor_s:>7,.0f} |"
        )


HEAD = (
    "| policy           | violated |   late | refused | accuracy |   USD  |  busy | "
    " loads | unload | µs p50 |   p99 | plan ms |   p99  | queries/s |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def run(
    ground: Ground, workload: Workload, drawn: Drawn, objective: Objective, policy: str, seed: int
) -> Run:
    setting = Setting(
        catalog=ground.catalog,
        kinds=ground.kinds,
        objective=objective,
        seed=seed,
        failures_every_s=workload.failures_every_s,
    )
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
        objective=objective,
        report=report,
        wall_s=wall_s,
        processor_s=used_s,
    )


# -- verdicts -----------------------------------------------------------------------------------


def verdicts(runs: Sequence[Run], objective: Objective) -> list[str]:
    """What the runs of one workload say of ours, a sentence each; misses begin with MISSED."""
    ours = next((r.report for r in runs if r.report.policy == OURS), None)
    published = [r.report for r in runs if r.report.policy != OURS]
    if ours is None or not published:
        return []
    return _by_accuracy(ours, published) if objective is Objective.ACCURACY else _by_cost(
        ours, published
    )  # fmt: skip


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
    if not keep:
        return [*said, f"ok      cost {ours.cost_usd:.3f} USD; no published policy keeps 1 %"]
    cheapest = min(keep, key=lambda r: r.cost_usd)
    text = f"cost {ours.cost_usd:.3f} USD, at most {cheapest.cost_usd:.3f} ({cheapest.policy})"
    return [*said, _said(ours.cost_usd <= cheapest.cost_usd, text)]


def _said(reached: bool, text: str) -> str:
    return f"{'ok     ' if reached else 'MISSED '} {text}"


# -- the command --------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    named = os.environ.get("MODELLESS_BENCH_DATA")
    data = None if named is None else Path(named)
    policies = asked.policies.split(",") if asked.policies else list(POLICIES)
    objectives = [Objective(asked.objective)] if asked.objective else list(Objective)[::-1]
    runs: list[Run] = []
    missed = 0
    print(describe())
    for ground in _grounds(asked.catalog, data):
        for workload in workloads(ground, data, quick=asked.quick):
            if asked.only and workload.name not in asked.only.split(","):
                continue
            drawn = draw(workload, ground, asked.seed)
            print(f"\n## {workload.name}, {ground.name} catalog: {workload.about}\n")
            print(_size(workload, ground, drawn))
            for objective in objectives:
                print(f"\nObjective {objective}\n\n{HEAD}")
                found = []
                for policy in policies:
                    found.append(run(ground, workload, drawn, objective, policy, asked.seed))
                    print(found[-1].row(), flush=True)
                said = verdicts(found, objective)
                print("\n" + "\n".join(said) if said else "", flush=True)
                missed += sum(1 for line in said if line.startswith("MISSED"))
                runs += found
    print(f"\n{len(runs)} runs in {sum(r.wall_s for r in runs):.0f} s, {missed} verdicts missed")
    if asked.json:
        asked.json.write_text(json.dumps(_plain(runs), indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation.policies")
    parser.add_argument("--quick", action="store_true", help="four minutes of simulated time")
    parser.add_argument("--only", help="names of workloads, by commas")
    parser.add_argument("--policies", help="names of policies, by commas")
    parser.add_argument("--objective", choices=[o.value for o in Objective])
    parser.add_argument("--catalog", choices=("synthetic", "timm", "both"), default="synthetic")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write all numbers")
    return parser


def _grounds(which: str, data: Path | None) -> Iterable[Ground]:
    if which != "timm":
        yield synthetic()
    if which != "synthetic":
        if data is None:
            sys.exit("the timm catalog needs MODELLESS_BENCH_DATA, a directory")
        yield timm(data)


def _size(workload: Workload, ground: Ground, drawn: Drawn) -> str:
    total = len(drawn.trace)
    devices = ", ".join(f"{k.count} {k.name}" for k in ground.kinds)
    return (
        f"{total:,} queries in {workload.duration_s:,} s on {devices}: "
        f"{total / workload.duration_s:,.0f}/s, at the peak {drawn.peak_qps:,.0f}/s of "
        f"{drawn.capacity_qps:,.0f}/s that the cheapest variants could serve"
    )


def _plain(runs: Iterable[Run]) -> list[dict[str, object]]:
    plain = []
    for each in runs:
        found = asdict(each.report)
        del found["timeline"]
        where = {"catalog": each.ground, "workload": each.workload, "objective": each.objective}
        plain.append({**where, **found, "wall_s": each.wall_s, "processor_s": each.processor_s})
    return plain


if __name__ == "__main__":
    sys.exit(main())
