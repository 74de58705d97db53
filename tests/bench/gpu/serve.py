"""The product on a GPU under load: ``python -m tests.bench.gpu.serve``.

A ResNet-50 for 224 x 224 is registered with its GPU variants; queries carry one row as bytes,
0.6 MB, and an SLO of 20 ms. Clients are processes of their own. Printed are what clients that wait
for their answers get, and the goodput: the highest rate of Poisson arrivals of which 99 % are
answered within the SLO, as this client sees it.
"""

import argparse
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.bench.gpu.models import MODELS, export
from tests.bench.peers.goodput import goodput
from tests.bench.serving.load import Job, Outcome, run
from tests.integration.deployment import CLI, deployed, environment, short_directory
from tests.ports import free_port

SHAPE = (3, 224, 224)
CLIENTS = 4


def together(job: Job, clients: int) -> list[Outcome]:
    """The same job by several processes at once, the rate divided among them."""
    rate = None if job.rate is None else job.rate / clients
    jobs = [replace(job, rate=rate, seed=seed) for seed in range(clients)]
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(run, jobs))


def told(outcomes: list[Outcome]) -> str:
    statuses: Counter[str] = Counter()
    for one in outcomes:
        statuses.update(one.statuses)
    asked = sum(one.asked for one in outcomes)
    good = sum(one.good for one in outcomes)
    p50 = max(one.ms["total"]["p50"] for one in outcomes)
    p99 = max(one.ms["total"]["p99"] for one in outcomes)
    seconds = outcomes[0].seconds
    return (
        f"| {statuses['200'] / seconds:,.0f} | {good / asked:.4f} | {p50:.2f} | {p99:.2f} "
        f"| {dict(statuses)} |"
    )


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=3.0)
    asked.add_argument("--slo-ms", type=float, default=20.0)
    asked.add_argument("--variants", default="onnx-fp32-cuda,onnx-fp16-cuda")
    asked.add_argument("--gateways", type=int, default=1)
    chosen = asked.parse_args()
    with short_directory() as home:
        state = Path(home)
        path, rows = export(MODELS["resnet50"], state)
        command = [*CLI, "register", str(path), "--task", "images", "--eval", str(rows)]
        command += ["--variants", chosen.variants, "--latency-ms", f"{chosen.slo_ms:g}"]
        subprocess.run(command, env=environment(state, free_port()), check=True)
        with deployed(state, gateways=chosen.gateways) as running:
            job = Job(
                port=running.port, connections=1, seconds=chosen.seconds, task="images",
                width=3 * 224 * 224, shape=SHAPE, binary=True, within_ms=chosen.slo_ms,
            )  # fmt: skip
            print("| what | answers/s | in time | p50 ms | p99 ms | statuses |")
            print("|---|--:|--:|--:|--:|---|")
            print("| one in flight", told([run(job)]), flush=True)
            closed = together(replace(job, connections=16), CLIENTS)
            print(f"| {16 * CLIENTS} in flight", told(closed), flush=True)

            def share(rate: float) -> float:
                found = together(replace(job, connections=256, rate=rate), CLIENTS)
                print(f"| {rate:,.0f} a second", told(found), flush=True)
                return sum(one.good for one in found) / sum(one.asked for one in found)

            begin = sum(one.qps for one in closed)
            print(f"\ngoodput: {goodput(share, begin):,.0f} queries a second")
            print({w["device_kind"]: [r["variant"] for r in w["replicas"]]
                   for w in running.workers()})  # fmt: skip


if __name__ == "__main__":
    main()
