"""Loads that take seconds: ``python -m tests.bench.gpu.slow_loads``.

What ``tests.bench.gpu.many`` plays on a GPU, in the simulator: 100 tasks, of which every other one
is a ResNet-50 (880 MiB, 4 s to load) and the rest encoders of BERT-base's size (582 MiB, 0.5 s), on
one device of 8 GiB that loads one after the other. Queries follow a Zipf distribution whose head
moves twice, 40 a second, with deadlines of 100, 300 and 1,000 ms. The device begins empty, and has
40 s to fill its memory before the first query.

``--why`` says why queries were refused: what had become of their variant before they came
(``tests.bench.gpu.refused``).

``--memory-mib 81920 --lead-s 0 --seconds 240`` has memory for all and no time: what queries find
while a device that has just started loads for some four minutes. ``--in-line`` adds the same with
loads in the order in which they were begun.
"""

import argparse
import random
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from controlplane.files.catalog import catalog_snapshot, read_catalog, read_devices
from controlplane.files.demand import read_trace
from planner.simulate import simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from tests.bench.gpu.refused import REASONS, noted
from tests.bench.live.residency import SLOS_MS, drawn

TASKS = 100
IN_LINE = ", in line"
MODELS = (
    ("bert-base", 582.0, 0.54, ((1, 1.0), (8, 1.5), (64, 6.3))),
    ("resnet50", 880.0, 3.96, ((1, 1.1), (8, 2.4), (64, 14.5))),
)
"""Name, MiB, seconds to load, and ms by batch size, as measured on an H100 (decision 29)."""


def write(
    folder: Path,
    seconds: float,
    qps: float,
    moves: int,
    seed: int,
    device_mib: float,
    lead_s: float,
) -> None:
    """The catalog, the device and the trace."""
    rows = ["task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s"]
    for task in range(TASKS):
        name, memory_mib, load_s, latency = MODELS[task % len(MODELS)]
        rows += [
            f"task-{task:03},{name},{name}-fp16,0.9,gpu,{size},{ms},{memory_mib},{load_s}"
            for size, ms in latency
        ]
    (folder / "catalog.csv").write_text("\n".join([*rows, ""]))
    (folder / "devices.csv").write_text(
        f"device_kind,count,memory_mib,usd_per_hour\ngpu,1,{device_mib},2\n"
    )
    draw = random.Random(seed)
    slos_ms = [draw.choice(SLOS_MS) for _ in range(TASKS)]
    queries, _ = drawn(seconds, qps, moves, seed, TASKS)
    lines = ["arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k"]
    lines += [f"{q.at_s + lead_s},task-{q.task:03},{slos_ms[q.task]:g},," for q in queries]
    (folder / "trace.csv").write_text("\n".join([*lines, ""]))


def played(folder: Path, rule: str) -> Report:
    catalog = folder / "catalog.csv"
    kinds = read_devices(folder / "devices.csv")
    known = catalog_snapshot(read_catalog(catalog, kinds, devices=folder / "devices.csv"), kinds)
    setting = Setting(catalog=known, kinds=kinds, eviction=rule, tick_s=1.0, elastic=False)
    trace = read_trace(
        folder / "trace.csv", {task.name for task in known.tasks}, seed=0, catalog=catalog
    )
    return simulate(setting, trace, "modelless", clock=time.perf_counter)


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.bench.gpu.slow_loads")
    asked.add_argument("--seconds", type=float, default=45.0)
    asked.add_argument("--qps", type=float, default=40.0)
    asked.add_argument("--moves", type=int, default=2)
    asked.add_argument("--seed", default="0,1,2")
    asked.add_argument("--rules", default="lru,gdsf,modelless")
    asked.add_argument("--memory-mib", type=float, default=8_192.0)
    asked.add_argument("--lead-s", type=float, default=40.0)
    asked.add_argument("--in-line", action="store_true")
    asked.add_argument("--why", action="store_true")
    chosen = asked.parse_args()
    columns = ["seed", "rule", "loads", "s of loading", "in time", "refused", "late"]
    columns += REASONS if chosen.why else ()
    print(f"| {' | '.join(columns)} |")
    print(f"|--:|---|{'--:|' * (len(columns) - 2)}", flush=True)
    for seed in map(int, chosen.seed.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            write(
                Path(folder), chosen.seconds, chosen.qps, chosen.moves, seed,
                chosen.memory_mib, chosen.lead_s,
            )  # fmt: skip
            in_line = patch("planner.simulation.loads.next_load", lambda waiting: waiting[0])
            names = chosen.rules.split(",")
            for rule in [*names, *[f"{rule}{IN_LINE}" for rule in names if chosen.in_line]]:
                with (
                    in_line if rule.endswith(IN_LINE) else nullcontext(),
                    noted() if chosen.why else nullcontext() as reasons,
                ):
                    found = played(Path(folder), rule.removesuffix(IN_LINE))
                print(
                    f"| {seed} | {rule} | {found.loads} | {found.load_s_total:.1f} "
                    f"| {found.in_time} | {found.rejected} | {found.late} |"
                    + (f" {reasons.row()} |" if reasons else ""),
                    flush=True,
                )


if __name__ == "__main__":
    main()
