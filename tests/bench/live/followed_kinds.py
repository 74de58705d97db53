"""What it costs that each kind gets its part: ``python -m tests.bench.live.followed_kinds``.

Fixed fleets of devices of which some are four times as slow, simulated by the command line for 90 s
at parts of what they serve together. Run it on two versions of the code to compare them.
"""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.integration.deployment import CLI

SECONDS = 90
SIZES = (1, 2, 4, 8, 16)
TIMES = 4


class Model(NamedTuple):
    name: str
    accuracy: float
    batch_ms: float
    row_ms: float


class Case(NamedTuple):
    fast: int
    slow: int
    models: Sequence[Model]
    slos_ms: Sequence[float]
    load: float
    floors: Sequence[float | None] = (None,)

    @property
    def qps(self) -> float:
        """What the devices do of the first model, at batches of eight, times the load."""
        first = self.models[0]
        fast_qps = 8_000 / (first.batch_ms + 8 * first.row_ms)
        return self.load * (self.fast + self.slow / TIMES) * fast_qps


ONE = (Model("m", 0.9, 0.0, 5.0),)
TWO = (Model("a", 0.8, 4.0, 1.0), Model("b", 0.9, 8.0, 3.0))
LOADS = (0.5, 0.7, 0.8, 0.9)
CASES = [
    Case(devices, devices, ONE, slos_ms, load)
    for devices in (1, 4)
    for slos_ms in ((80.0,), (200.0,), (500.0,), (60.0, 400.0))
    for load in LOADS
]
CASES += [Case(3, 6, TWO, (100.0, 400.0), load, (None, 0.85)) for load in (0.5, 0.8)]


def files(case: Case) -> dict[str, list[str]]:
    catalog = ["task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s"]
    for model in case.models:
        for kind, times in (("fast", 1), ("slow", TIMES)):
            for size in SIZES:
                ms = times * (model.batch_ms + model.row_ms * size)
                catalog.append(
                    f"t,{model.name},{model.name}-v,{model.accuracy},{kind},{size},{ms},1,0.01"
                )
    devices = ["device_kind,count,memory_mib,usd_per_hour"]
    devices += [f"fast,{case.fast},1000,0.04", f"slow,{case.slow},1000,0.04"]
    classes = [(slo, floor) for slo in case.slos_ms for floor in case.floors]
    trace = ["second,task,requests,latency_slo_ms,min_accuracy"]
    trace += [
        f"{second},t,{case.qps / len(classes):.3f},{slo:g},{'' if floor is None else floor}"
        for second in range(SECONDS)
        for slo, floor in classes
    ]
    return {"catalog": catalog, "devices": devices, "trace": trace}


def main() -> None:
    print("| fast + slow | models | SLOs in ms | load | violated | accuracy | busy |")
    print("|---|--:|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            options = ["--fixed-fleet", "--tick-s", "1", "--seed", "1", "--json"]
            for what, lines in files(case).items():
                path = Path(folder) / f"{what}.csv"
                path.write_text("\n".join([*lines, ""]))
                options += [f"--{what}", str(path)]
            ran = subprocess.run([*CLI, "simulate", *options], stdout=subprocess.PIPE, check=True)
            found = json.loads(ran.stdout)
            slos = " ".join(f"{slo:g}" for slo in case.slos_ms)
            print(
                f"| {case.fast} + {case.slow} | {len(case.models)} | {slos} | {case.load} "
                f"| {100 * found['violation_ratio']:.2f} % | {found['effective_accuracy']:.4f} "
                f"| {found['busy_ratio']:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
