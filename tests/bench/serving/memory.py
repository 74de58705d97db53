"""Memory that is short, live: what is loaded and evicted, and what clients are told.

Run with ``python -m tests.bench.serving.memory`` from the repository's root; it takes 120 s for
each of two sizes of memory and two eviction rules. One task is asked for by a hot class and five
queries of lower rates that are pinned to other variants. All have half a second, which is enough
for any load. Arrivals are Poisson and the same for every row.

* fits: memory for all variants that are asked for, with a twentieth to spare;
* does not fit: for the hot variant and the largest of the others beside it, which is about half
  of what they take.

Printed for each: queries answered, COLD answers, other errors, loads and unloads by the plan, of
them loads of variants that no query asks for; and how often a plain LRU cache of variants would
have missed on the same arrivals.
"""

import argparse
import http.client
import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.serving.state import copy_filled
from tests.integration.deployment import Deployment, ask, deployed, short_directory

HOT = "cnn-v1-onnx-int8"
HOT_QPS = 34.0
RARE = {
    "cnn-small-v1-onnx-fp32": 1.0,
    "cnn-small-v1-onnx-int8": 0.5,
    "mlp-v1-onnx-fp32": 0.5,
    "mlp-v1-onnx-int8": 0.3,
    "mlp-small-v1-onnx-fp32": 0.2,
}
"""Queries per second that are pinned to each."""
PATIENT_MS = 500.0
SETTLE_S = 8.0
"""After the start, before the first query."""


class Arrival(NamedTuple):
    at_s: float
    variant: str


class Outcome(NamedTuple):
    arrival: Arrival
    code: str


def arrivals(seconds: float, seed: int) -> list[Arrival]:
    draw = random.Random(seed)
    found = []
    for variant, qps in {HOT: HOT_QPS, **RARE}.items():
        at_s = draw.expovariate(qps)
        while at_s < seconds:
            found.append(Arrival(at_s, variant))
            at_s += draw.expovariate(qps)
    return sorted(found)


def lru_misses(trace: Sequence[Arrival], sizes: dict[str, float], memory_mib: float) -> int:
    """Queries that find their variant missing in a plain LRU cache, the first of each included."""
    held: OrderedDict[str, float] = OrderedDict()
    misses = 0
    for arrival in trace:
        if arrival.variant in held:
            held.move_to_end(arrival.variant)
            continue
        misses += 1
        while held and sum(held.values()) + sizes[arrival.variant] > memory_mib:
            held.popitem(last=False)
        held[arrival.variant] = sizes[arrival.variant]
    return misses


def play(
    deployment: Deployment, trace: Sequence[Arrival], variants: dict[str, Any]
) -> list[Outcome]:
    """Ask each query at its time, whatever became of those before it."""
    local = threading.local()
    floor = variants[HOT]["accuracy"]

    def one(arrival: Arrival) -> Outcome:
        connection = getattr(local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", deployment.port, timeout=20)
            local.connection = connection
        body: dict[str, Any] = {"task": "digits", "inputs": [[0.0] * 64]}
        if arrival.variant == HOT:
            body["slo"] = {"latency_ms": PATIENT_MS, "accuracy": floor}
        else:
            body["variant"] = arrival.variant
            body["slo"] = {"latency_ms": PATIENT_MS}
        answer = ask(connection, "POST", "/v1/query", body)
        return Outcome(arrival, "OK" if answer.status == 200 else str(answer.body["code"]))

    began_s = time.monotonic()
    with ThreadPoolExecutor(32) as clients:
        waiting = []
        for arrival in trace:
            time.sleep(max(0.0, began_s + arrival.at_s - time.monotonic()))
            waiting.append(clients.submit(one, arrival))
        return [each.result() for each in waiting]


def measure(home: Path, rule: str, memory_mib: float, trace: Sequence[Arrival]) -> dict[str, Any]:
    with deployed(home, worker_memory_mib=memory_mib, eviction=rule) as running:
        time.sleep(SETTLE_S)
        variants = {v["name"]: v for v in running.variants()}
        first = max((e["seq"] for e in events(running)), default=0)
        outcomes = play(running, trace, variants)
        told = [e for e in events(running) if e["seq"] > first]
    asked = {arrival.variant for arrival in trace}
    codes = Counter(outcome.code for outcome in outcomes)
    loads = [e["subject"] for e in told if e["kind"] == "loaded"]
    unloads = [e["subject"] for e in told if e["kind"] == "unloaded"]
    cold = [o for o in outcomes if o.code == "COLD"]
    return {
        "answered": codes["OK"],
        "cold": len(cold),
        "cold_of": dict(Counter(o.arrival.variant for o in cold)),
        "errors": {code: n for code, n in codes.items() if code not in ("OK", "COLD")},
        "loads": len(loads),
        "filler": sum(not any(f"/{name} on" in subject for name in asked) for subject in loads),
        "unloads": len(unloads),
        "asked_unloaded": sum(any(f"/{n} on" in s for n in asked) for s in unloads),
        "hot_unloaded": sum(f"/{HOT} on" in subject for subject in unloads),
        "on_demand": dict(Counter(e["kind"] for e in told)),
    }


def events(deployment: Deployment) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deployment.get("/v1/events?limit=1000")["events"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.serving.memory", description=__doc__
    )
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", default="modelless,lru")
    parser.add_argument("--cases", default="fits,does not fit")
    asked = parser.parse_args()
    trace = arrivals(asked.seconds, asked.seed)
    print(f"{len(trace)} queries in {asked.seconds:g} s")
    for case in asked.cases.split(","):
        for rule in asked.rules.split(","):
            with short_directory() as home:
                state = copy_filled(home)
                sizes = catalog_sizes(state)
                others = sum(sizes[name] for name in RARE)
                memory_mib = 1.05 * (sizes[HOT] + others)
                if case != "fits":
                    memory_mib = 1.02 * (sizes[HOT] + max(sizes[name] for name in RARE))
                found = measure(state, rule, memory_mib, trace)
            missed = lru_misses(trace, sizes, memory_mib)
            print(f"{case}, {memory_mib:.1f} MiB, {rule}: {found}; plain LRU misses {missed}")


def catalog_sizes(state: Path) -> dict[str, float]:
    from contextlib import closing

    from variants.catalog.sql import open_catalog

    with closing(open_catalog(f"sqlite:///{state / 'catalog.db'}")) as catalog:
        return {p.variant: p.memory_mib for p in catalog.snapshot().profiles}


if __name__ == "__main__":
    main()
