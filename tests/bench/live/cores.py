"""What more cores bring: ``python -m tests.bench.live.cores``.

``modelless up`` with the example tasks gets N cores, all its processes included, and clients get
the others. The clients keep their connections and ask for ``digits`` again as soon as they are
answered. Printed is, for each few seconds from the start of the load on, how many queries were
answered and how many gateways ran, and what the busiest and the idlest of them computed. What
answers a query of this size is the gateways; the control loop starts more of them while those there
are have too much to do, and they divide the connections among themselves.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.bench import machine
from tests.bench.serving.load import Job
from tests.integration.deployment import Deployment, deployed, short_directory

STEP_S = 5.0
START_S = 600.0


def looked(running: Deployment) -> tuple[float, list[float]]:
    """Queries answered since the start, and how busy each gateway is."""
    text = running.request("GET", "/metrics").body.decode()
    answered, busy = 0.0, []
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name == "modelless_queries_total":
                answered += one.value
            elif one.name == "modelless_event_loop_busy_ratio":
                busy.append(one.value)
    return answered, busy


def clients(job: Job, count: int, cores: list[int]) -> list[subprocess.Popen[str]]:
    """Client processes, each on a core of its own."""
    found = []
    for at in range(count):
        one = {**asdict(job), "seed": at, "core": cores[at % len(cores)]}
        command = [sys.executable, "-m", "tests.bench.serving.load"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(one))
        process.stdin.close()
        process.stdin = None  # or else ``communicate`` would write there
        found.append(process)
    return found


def measured(given: argparse.Namespace, cores: int) -> None:
    allowed = sorted(given.allowed)
    os.sched_setaffinity(0, allowed[:cores])
    with (
        short_directory() as home,
        deployed(home / "s", arguments=["--example", "digits"], start_s=START_S) as running,
    ):
        time.sleep(given.settle)
        rest = allowed[cores:] or allowed
        os.sched_setaffinity(0, rest)
        job = Job(
            port=running.port,
            connections=given.connections // given.clients,
            seconds=given.seconds,
            slo_ms=5_000.0,
        )
        asking = clients(job, given.clients, rest)
        began_s = before_s = time.monotonic()
        before, _ = looked(running)
        while time.monotonic() - began_s < given.seconds - STEP_S / 2:
            time.sleep(STEP_S)
            now_s = time.monotonic()
            answered, busy = looked(running)
            rate = (answered - before) / (now_s - before_s)
            print(
                f"| {cores} | {now_s - began_s:.0f} | {rate:,.0f} | {len(busy)}"
                f" | {max(busy):.2f} | {min(busy):.2f} |",
                flush=True,
            )
            before, before_s = answered, now_s
        outcomes: list[dict[str, Any]] = []
        for process in asking:
            told, _ = process.communicate(timeout=60)
            outcomes.append(json.loads(told))
        qps = sum(one["statuses"].get("200", 0) for one in outcomes) / given.seconds
        p50, p99 = (max(one["ms"]["total"][at] for one in outcomes) for at in ("p50", "p99"))
        lost = sum(one["statuses"].get("lost", 0) for one in outcomes)
        busy_clients = max(one["cpu_cores"] for one in outcomes)
        print(
            f"{cores} cores: {qps:,.0f}/s in all, p50 {p50:.2f} ms, p99 {p99:.2f} ms, {lost} lost; "
            f"the busiest client used {busy_clients:.2f} of its core",
            flush=True,
        )
    os.sched_setaffinity(0, allowed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.cores", description=__doc__)
    parser.add_argument("--cores", type=int, nargs="+", default=[4])
    parser.add_argument("--clients", type=int, default=4, help="processes")
    parser.add_argument("--connections", type=int, default=64, help="of all clients")
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--settle", type=float, default=10.0, help="before the load")
    given = parser.parse_args()
    given.allowed = os.sched_getaffinity(0)
    print(machine.describe())
    print("| cores | after s | answered/s | gateways | busiest | idlest |")
    print("|--:|--:|--:|--:|--:|--:|")
    for cores in given.cores:
        measured(given, cores)


if __name__ == "__main__":
    main()
