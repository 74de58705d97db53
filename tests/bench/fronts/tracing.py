"""What traces cost the gateway for a query: ``python -m tests.bench.fronts.tracing``.

A query path whose worker answers at once takes queries of 16 numbers as JSON, without traces and
with them, in short turns; a tracer makes the spans in its thread and a collector that takes no time
drops them. Printed are the processor time of a query (all threads), and of that what the event
loop's thread takes, as the median over rounds, with the range of the ratio to no traces.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from statistics import median

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from controlplane.gateway.tracing import watched
from controlplane.gateway.tracing.sending import Sending
from controlplane.gateway.tracing.watched import Traces
from tests.bench import machine
from tests.controlplane.gateway.query.test_cost import Asked
from tests.planner.builders import NOW_MS
from workers.channel.reply import Reply
from workers.types import ReplyCode

SAMPLED = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOT_SAMPLED = SAMPLED[:-1] + b"0"


class Nowhere(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def turn(asked: Asked, traces: Traces | None, parent: bytes | None, queries: int) -> list[float]:
    """Processor time per query in us: of all threads, and of this one."""
    path = asked.path
    path.traces = traces
    all_s, own_s = time.process_time(), time.thread_time()
    for _ in range(queries):
        if traces is None:
            path.handle_v1(asked.v1, NOW_MS, asked.respond)
        else:
            respond = traces.watch(asked.respond, "/v1/query", NOW_MS, parent)
            path.handle_v1(asked.v1, NOW_MS, respond)
    own_us = (time.thread_time() - own_s) / queries * 1e6
    _rest()
    return [(time.process_time() - all_s) / queries * 1e6, own_us]


def _rest() -> None:
    """Wait until other threads have done what they have left to do."""
    while True:
        before_s = time.process_time()
        time.sleep(0.05)
        if time.process_time() - before_s < 0.001:
            return


async def measured(rounds: int, queries: int) -> None:
    asked = Asked(Reply(ReplyCode.OK, 1, 20, 10, 0, "", [np.ndarray((1, 2), np.float32, bytes(8))]))
    sending = Sending("http://127.0.0.1:9", "bench", "0", {}, Nowhere())
    watched.MOST_PER_S = watched.MOST_AT_ONCE = 1e12  # what each takes is measured

    def at(share: float) -> Traces:
        return Traces(share, lambda: NOW_MS, sending.take, sending.dropped)

    ways: dict[str, tuple[Traces | None, bytes | None]] = {
        "no traces": (None, None),
        "not traced by their senders": (at(0.0), NOT_SAMPLED),
        "a share of 0.01": (at(0.01), None),
        "each one": (at(1.0), SAMPLED),
    }
    found: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (traces, parent) in ways.items():
            found[name].append(turn(asked, traces, parent, queries))
    plain = found["no traces"]
    for name, took in found.items():
        ratios = sorted(one[0] / base[0] for one, base in zip(took, plain, strict=True))
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        print(
            f"{name:28} {median(one[0] for one in took):6.1f} us in all, "
            f"{median(one[1] for one in took):6.1f} of the event loop; "
            f"{median(ratios):.2f} times ({low:.2f} to {high:.2f})"
        )
    await asyncio.to_thread(sending.close, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fronts.tracing", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--queries", type=int, default=500)
    given = parser.parse_args()
    print(machine.describe(), flush=True)
    with machine.Others() as others:
        asyncio.run(measured(given.rounds, given.queries))
    print(f"others used {others.cores:.1f} cores meanwhile")


if __name__ == "__main__":
    main()
