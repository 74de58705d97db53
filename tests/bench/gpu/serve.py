"""The product on a GPU under load: ``python -m tests.bench.gpu.serve``.

Models are registered with their GPU variants, and asked one row at a time as bytes: ResNet-50 for
224 x 224 with 0.6 MB a query, an encoder of BERT-base's size with 1 kB. Clients are processes of
their own, and queries come as a Poisson process does. The goodput is the highest rate of which 99 %
are answered within the SLO, as the clients see it.
"""

import argparse
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.gpu.models import LENGTH, MODELS, WORDS, export
from tests.bench.peers.goodput import SHARE
from tests.bench.serving.load import Job, Outcome, run
from tests.integration.deployment import CLI, deployed, environment, short_directory
from tests.ports import free_port

CLIENTS = 4
MOST_CONNECTIONS = 1024
ROWS: dict[str, dict[str, Any]] = {
    "resnet50": {"width": 3 * 224 * 224, "shape": (3, 224, 224)},
    "bert-base": {"width": LENGTH, "words": WORDS},
}


def together(job: Job) -> list[Outcome]:
    """The same job by several processes at once, its rate and connections divided among them."""
    assert job.rate is not None
    part = replace(job, rate=job.rate / CLIENTS, connections=job.connections // CLIENTS)
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(run, [replace(part, seed=seed) for seed in range(CLIENTS)]))


def share(found: list[Outcome]) -> float:
    """The part that was answered in time."""
    return sum(one.good for one in found) / max(1, sum(one.asked for one in found))


def told(found: list[Outcome]) -> str:
    statuses: Counter[str] = Counter()
    for one in found:
        statuses.update(one.statuses)
    good = sum(one.good for one in found) / found[0].seconds
    p50, p99 = (max(one.ms["total"][part] for one in found) for part in ("p50", "p99"))
    return f"{good:,.0f} | {share(found):.4f} | {p50:.2f} | {p99:.2f} | {dict(statuses)} |"


def goodput(job: Job, begin: float, label: str) -> float:
    """The rate is doubled until it is too high, then the middle is tried three times."""
    low, high = 0.0, 0.0
    rate = begin
    for _ in range(12):
        found = together(replace(job, rate=rate, connections=MOST_CONNECTIONS))
        print(f"| {label} | {rate:,.0f} | {told(found)}", flush=True)
        low, high = (rate, high) if share(found) >= SHARE else (low, rate)
        if high and (high - low) <= low / 8 + begin / 16:
            break
        rate = 2 * rate if not high else (low + high) / 2
    return low


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=3.0)
    asked.add_argument("--slo-ms", type=float, default=20.0)
    asked.add_argument("--begin", type=float, default=250.0, help="the first rate")
    asked.add_argument("--models", default=",".join(ROWS))
    asked.add_argument("--gateways", default="1,4")
    asked.add_argument("--variants", default="onnx-fp32-cuda,onnx-fp16-cuda")
    chosen = asked.parse_args()
    names = chosen.models.split(",")
    with short_directory() as home:
        state = Path(home)
        for name in names:
            path, rows = export(MODELS[name], state)
            command = [*CLI, "register", str(path), "--task", name, "--eval", str(rows)]
            command += ["--variants", chosen.variants, "--latency-ms", f"{chosen.slo_ms:g}"]
            subprocess.run(command, env=environment(state, free_port()), check=True)
        print("\n| gateways, model | asked/s | in time/s | share | p50 ms | p99 ms | statuses |")
        print("|---|--:|--:|--:|--:|--:|---|", flush=True)
        for gateways in chosen.gateways.split(","):
            with deployed(state, gateways=gateways) as running:
                for name in names:
                    job = Job(
                        port=running.port, connections=1, seconds=chosen.seconds, task=name,
                        binary=True, within_ms=chosen.slo_ms, **ROWS[name],
                    )  # fmt: skip
                    label = f"{gateways}, {name}"
                    print(f"| {label} | one in flight | {told([run(job)])}", flush=True)
                    best = goodput(job, chosen.begin, label)
                    print(f"| {label} | **goodput** | **{best:,.0f}** | | | | |", flush=True)


if __name__ == "__main__":
    main()
