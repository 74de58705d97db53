"""Watch what a running modelless is asked, and simulate it on fleets of other sizes.

Start modelless in another terminal with ``make up``, keep it busy (``examples/ask.py`` in a loop
will do), and run::

    .venv/bin/python examples/what_if.py --seconds 30 --workers 1 2 4

There is no stored trace of single queries, so this one is made of what the gateway counts: the
queries of each task in every second, from ``/metrics``. Their SLOs are those of the demand in the
latest tick, in the same shares; before there is one, the task's defaults. Profiles and prices are
the running system's. The files stay in ``--folder``: edit ``devices-2.csv``, say, and simulate
again with other prices or another kind of device.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

CATALOG = "task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s,energy_j"
DEVICES = "device_kind,count,memory_mib,usd_per_hour,idle_w,carbon_g_per_kwh"
TRACE = "second,task,requests,latency_slo_ms,min_accuracy"
COUNTED = re.compile(r'modelless_(?:queries|errors)_total\{.*task="([^"]+)".*\} (\S+)')
"""A line of ``/metrics`` that counts queries with an answer, or with an error."""

Row = tuple[Any, ...]


def watch(gateway: httpx.Client, seconds: int) -> list[Counter[str]]:
    """Queries of each known task in each second: one counter a second."""
    known = {task["name"] for task in gateway.get("/v1/tasks").json()["tasks"]}
    counts, due_s = [_asked(gateway)], time.monotonic()
    for _ in range(seconds):
        due_s += 1
        time.sleep(max(0.0, due_s - time.monotonic()))
        counts.append(_asked(gateway))
    return [
        Counter({task: after[task] - before[task] for task in known if after[task] > before[task]})
        for before, after in pairwise(counts)
    ]


def _asked(gateway: httpx.Client) -> Counter[str]:
    """Queries of each task since the gateway started."""
    found: Counter[str] = Counter()
    for task, count in COUNTED.findall(gateway.get("/metrics").text):
        found[task] += int(float(count))
    return found


def slo_shares(gateway: httpx.Client, task: str) -> dict[tuple[float, float | None], float]:
    """Shares of a task's SLO classes, as (latency in ms, accuracy floor), in the latest demand."""
    ticks = gateway.get("/v1/ticks", params={"limit": 100}).json()["ticks"]
    for tick in ticks:
        rates: Counter[tuple[float, float | None]] = Counter()
        for demand in tick["body"]["demand"]:
            if demand["task"] == task and demand["qps"] > 0:
                rates[demand["latency_ms"], demand["accuracy"]] += demand["qps"]
        if rates:
            return {slo: qps / rates.total() for slo, qps in rates.items()}
    default = gateway.get(f"/v1/tasks/{task}").json()["slo"]
    return {(default["latency_ms"], default["accuracy"]): 1.0}


def trace_rows(gateway: httpx.Client, watched: list[Counter[str]]) -> Iterable[Row]:
    """Rows of a rate trace."""
    shares = {task: slo_shares(gateway, task) for task in set().union(*watched)}
    for second, counts in enumerate(watched):
        for task, count in counts.items():
            for (latency_ms, accuracy), share in shares[task].items():
                yield second, task, count * share, latency_ms, accuracy


def catalog_rows(gateway: httpx.Client, tasks: Iterable[str]) -> Iterable[Row]:
    """Rows of a catalog: the 95th percentile of each profiled batch size of live variants."""
    for task in tasks:
        variants = gateway.get(f"/v1/tasks/{task}/variants").json()["variants"]
        live = {variant["name"]: variant for variant in variants if variant["stage"] == "live"}
        for profile in gateway.get("/v1/profiles", params={"task": task}).json()["profiles"]:
            variant = live.get(profile["variant"])
            if variant is None:
                continue
            model = variant["model_version"].rpartition("-v")[0]
            for point in profile["points"]:
                yield (
                    task, model, variant["name"], variant["accuracy"], profile["device_kind"],
                    point["batch_size"], point["p95_ms"], profile["memory_mib"], profile["load_s"],
                    point["energy_j"],
                )  # fmt: skip


def device_rows(kinds: Iterable[dict[str, Any]], count: int) -> Iterable[Row]:
    """So many devices of each kind; what is not known of energy stays blank."""
    for kind in kinds:
        carbon = " ".join(str(grams) for grams in kind["carbon_g_per_kwh"])
        price, idle_w = kind["usd_per_hour"], kind["idle_w"]
        yield kind["name"], count, kind["memory_mib"], price, idle_w, carbon


def simulate(folder: Path, devices: Path) -> dict[str, Any]:
    """What ``modelless simulate`` says of a fleet that is there all the time."""
    modelless_command = Path(sys.executable).with_name("modelless")
    files = ["--catalog", str(folder / "catalog.csv"), "--trace", str(folder / "trace.csv")]
    options = ["--devices", str(devices), "--objective", "accuracy", "--json"]
    found = subprocess.run(
        [modelless_command, "simulate", *files, *options], check=True, capture_output=True
    )
    report: dict[str, Any] = json.loads(found.stdout)
    return report


def write(path: Path, header: str, rows: Iterable[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--url", default=os.environ.get("MODELLESS_URL") or "http://127.0.0.1:8000"
    )
    options.add_argument("--seconds", type=int, default=30)
    options.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options.add_argument("--folder", type=Path, default=Path("what-if"))
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)

    token = os.environ.get("MODELLESS_API_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=given.url, headers=headers, trust_env=False) as gateway:
        watched = watch(gateway, given.seconds)
        asked = sum(watched, Counter[str]())
        if not asked:
            sys.exit(f"nothing was asked within {given.seconds} s")
        print(f"asked within {given.seconds} s: {dict(asked)}")
        write(given.folder / "trace.csv", TRACE, trace_rows(gateway, watched))
        write(given.folder / "catalog.csv", CATALOG, catalog_rows(gateway, asked))
        kinds = gateway.get("/v1/devices").json()["devices"]

    print("workers  violated  accuracy  cost in USD")
    for count in given.workers:
        devices = given.folder / f"devices-{count}.csv"
        write(devices, DEVICES, device_rows(kinds, count))
        found = simulate(given.folder, devices)
        violated, accuracy = found["violation_ratio"], found["effective_accuracy"]
        print(f"{count:7}  {violated:8.1%}  {accuracy:8.3f}  {found['cost_usd']:.4f}")


if __name__ == "__main__":
    main()
