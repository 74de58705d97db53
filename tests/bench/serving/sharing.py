"""Shared answers: what asking for them costs where none is kept, and what one that is kept saves.

``python -m tests.bench.serving.sharing [--rounds 5] [--seconds 1]`` prints, for queries of one row
over ``/v1/query``, the processor time of the gateway for each and queries per second: of a task
that shares nothing, of one that shares and is always asked something new, and of one that is always
asked the same. Gateway, worker and client are processes of their own; rounds are taken in turns,
and ratios within each. Then what a kept answer really takes, and how long forgetting all of them
stops the gateway.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import uvloop

from controlplane.gateway.sharing.kept_answers import KeptAnswers
from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.serving import FAST, TASK, Served, post, serving, until
from tests.variants.catalog_builders import set_sharing
from variants.types import Digest, Sharing, VariantName

BODY = b'{"task":"letters","inputs":[[7000,7000000,0,0]]}'
IN_FLIGHT = (1, 32)
KINDS = ("not shared", "always new", "always the same")
CLIENT = """
import asyncio, json, sys, time
port, in_flight, seconds, heads = json.loads(sys.argv[1])
async def connection(number, end_s, took_s):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    while time.perf_counter() < end_s:
        # Exact in FP32, and as long in both kinds.
        values = b"%d,%d" % (1000 + number, 1000000 + sent) if heads[1] else b"1000,1000000"
        sent += 1
        begun_s = time.perf_counter()
        writer.write(heads[0].encode().replace(b"7000,7000000", values))
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head.lower().split(b"content-length: ")[1].split(b"\\r\\n")[0]
        await reader.readexactly(int(length))
        took_s.append(time.perf_counter() - begun_s)
    writer.close()
async def all_of_them():
    took_s, began_s = [], time.perf_counter()
    end_s = began_s + seconds
    await asyncio.gather(*(connection(n, end_s, took_s) for n in range(in_flight)))
    middle_s = sorted(took_s)[len(took_s) // 2]
    print(json.dumps([len(took_s), time.perf_counter() - began_s, middle_s]))
asyncio.run(all_of_them())
"""


async def bench(rounds: int, seconds: float) -> None:
    with ExitStack() as stack:
        live = stack.enter_context(TemporaryDirectory(prefix="ml-", dir="/tmp"))
        folder = stack.enter_context(TemporaryDirectory(prefix="ml-", dir="/tmp"))
        valkey = EmbeddedValkey(Path(live))
        valkey.start()
        stack.callback(valkey.stop)
        async with serving(Path(folder), valkey.url) as served:
            await served.process("w1", FAST)
            for in_flight in IN_FLIGHT:
                found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
                for _ in range(rounds):
                    for kind in KINDS:
                        found[kind].append(await _round(served, kind, in_flight, seconds))
                print(f"{in_flight} in flight: gateway µs per query, queries/s, p50 ms; ratios")
                for kind in KINDS:
                    _show(kind, found[kind], found[KINDS[0]])


async def _round(
    served: Served, kind: str, in_flight: int, seconds: float
) -> tuple[float, float, float]:
    sharing = None if kind == KINDS[0] else Sharing(ttl_s=3_600.0, memory_mib=8.0)
    set_sharing(served.gateway.catalog, TASK.name, sharing)
    await until(lambda: served.gateway.path.tasks[TASK.name].sharing == sharing)
    asked = post(BODY).decode()
    job = json.dumps([served.port, in_flight, seconds, [asked, kind != KINDS[2]]])
    before_s = time.process_time()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, job, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    used_s = time.process_time() - before_s
    answered, took_s, p50_s = json.loads(said)
    return used_s / answered * 1e6, answered / took_s, p50_s * 1e3


def _show(
    kind: str, found: list[tuple[float, float, float]], against: list[tuple[float, float, float]]
) -> None:
    cost_us, qps, p50_ms = (median(column) for column in zip(*found, strict=True))
    costs = [one[0] / other[0] for one, other in zip(found, against, strict=True)]
    rates = [one[1] / other[1] for one, other in zip(found, against, strict=True)]
    print(
        f"  {kind:<16}{cost_us:5.0f} µs {qps:8,.0f}/s {p50_ms:6.2f} ms"
        f"   cost {median(costs):.2f} [{min(costs):.2f}, {max(costs):.2f}]"
        f"   rate {median(rates):.2f} [{min(rates):.2f}, {max(rates):.2f}]",
        flush=True,
    )


def memory() -> None:
    """What 64 MiB of small answers really take, and how long forgetting them lasts."""
    name = VariantName("m-v1-onnx-fp32")
    kept = KeptAnswers(Sharing(ttl_s=60.0, memory_mib=64.0), {name: (Digest("a" * 64), 0.9)})
    output = np.zeros((1, 10), np.float32)
    gc.collect()
    tracemalloc.start()
    for key in range(100_000):
        kept.add(key.to_bytes(32, "big"), name, "m-v1", "w1", 1, [output], 0.0)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    count, counted = len(kept), kept.size_bytes
    kept.clear()
    begun_s = time.perf_counter()
    kept.sweep(0.0)
    took_ms = (time.perf_counter() - begun_s) * 1e3
    print(
        f"{count:,} answers of 10 numbers: {counted / 2**20:.1f} MiB counted, "
        f"{taken / 2**20:.1f} MiB taken; a sweep frees {count - len(kept):,} in {took_ms:.1f} ms"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    memory()
    uvloop.run(bench(arguments.rounds, arguments.seconds))
