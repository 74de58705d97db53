"""One arena for all variants of a worker, beside one for each.

``python -m tests.bench.profiling.working_memory --state-dir ~/.modelless`` takes all variants for
ONNX Runtime on the CPU that an installation knows (``make up`` makes fourteen), each in the batch
sizes of its profile. Processes with one arena and with many take turns. Each loads all variants,
runs batches of drawn variants and sizes, and says what it has grown by, how much processor time
the first ``--batches`` took and the same ones again, and what one row takes then. Beside it stands
what is counted.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import median

import numpy as np

from controlplane.cluster.head import store_of
from controlplane.load_specs import Specs
from controlplane.settings import load_settings
from profiler.sandbox.calls import load_spec
from profiler.sandbox.child import import_back_end
from profiler.sandbox.measure import resident_mib
from tests.bench.machine import describe
from variants.catalog.sql import open_catalog
from variants.working_memory import shared_mib
from workers.runtimes.registry import make_runtime
from workers.runtimes.sharing.arena import ARENA

WAYS = ("each", "one")


def played(given: dict[str, object], *, shared: bool, batches: int) -> dict[str, float]:
    """What a process takes that runs these variants."""
    import_back_end("onnx")
    if shared:
        ARENA.share()
    specs = [load_spec(values) for values in given["specs"]]  # type: ignore[attr-defined]
    most = [int(rows) for rows in given["rows"]]  # type: ignore[attr-defined]
    before_mib = resident_mib()
    loaded = [make_runtime(spec, int(str(given["threads"]))) for spec in specs]
    for one in loaded:
        one.load()
    loaded_mib = resident_mib() - before_mib
    draw = Random(0)
    drawn = [(at := draw.randrange(len(loaded)), draw.randint(1, most[at])) for _ in range(batches)]

    def run(at: int, rows: int) -> None:
        tensors = specs[at].inputs
        loaded[at].run([np.zeros((rows, *t.shape), dtype=t.dtype) for t in tensors])

    def all_s() -> float:
        began_s = time.process_time()
        for at, rows in drawn:
            run(at, rows)
        return time.process_time() - began_s

    first_s, again_s = all_s(), all_s()
    taken_mib = resident_mib() - before_mib
    lone = []
    for at in range(len(loaded)):
        times = []
        for _ in range(50):
            began_s = time.perf_counter()
            run(at, 1)
            times.append(time.perf_counter() - began_s)
        lone.append(median(times) * 1_000)
    return {
        "loaded_mib": loaded_mib,
        "taken_mib": taken_mib,
        "first_s": first_s,
        "again_s": again_s,
        "lone_ms": sum(lone),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profiling.working_memory")
    parser.add_argument("--state-dir", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help="play what stands on standard input, once")
    asked = parser.parse_args()
    if asked.way:
        given = json.load(sys.stdin)
        print(json.dumps(played(given, shared=asked.way == "one", batches=asked.batches)))
        return 0
    settings = load_settings(**({"state_dir": asked.state_dir} if asked.state_dir else {}))
    catalog = open_catalog(settings.catalog_url)
    known = catalog.snapshot()
    catalog.close()
    specs = Specs(known, store_of(settings))
    kinds = {kind.name: kind for kind in known.device_kinds if kind.gpu is None}
    runtimes = {variant.key: variant.runtime for variant in known.variants}
    profiles = [
        profile
        for profile in known.profiles
        if profile.device_kind == min(kinds) and runtimes[profile.task, profile.variant] == "onnx"
    ]
    found = [specs.of(one.task, one.variant, one.device_kind) for one in profiles]
    given = {
        "specs": [asdict(spec) for spec in found],
        "rows": [profile.points[-1].batch_size for profile in profiles],
        "threads": asked.threads,
    }
    kind = kinds[min(kinds)]
    print(describe())
    print(
        f"{len(found)} variants; alone they take {sum(p.memory_mib for p in profiles):,.0f} MiB;"
        f" counted are {sum(spec.memory_mib for spec in found):,.0f}, and"
        f" {shared_mib(kind):,.0f} may come on top\n"
    )
    print("| arenas | loaded MiB | taken MiB | first batches, s | again, s | a row of each, ms |")
    print("|---|--:|--:|--:|--:|--:|")
    for _ in range(asked.rounds):
        for way in WAYS:
            told = ("--way", way, "--batches", str(asked.batches))
            ran = subprocess.run(
                [sys.executable, "-m", __spec__.name, *told],
                input=json.dumps(given), capture_output=True, text=True, check=True,
            )  # fmt: skip
            one = json.loads(ran.stdout)
            print(
                f"| {way} | {one['loaded_mib']:,.0f} | {one['taken_mib']:,.0f}"
                f" | {one['first_s']:.2f} | {one['again_s']:.2f} | {one['lone_ms']:.2f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
