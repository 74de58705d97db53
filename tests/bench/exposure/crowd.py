"""One client's latency beside thousands of idle or dripping connections, against without.

    python -m tests.bench.exposure.crowd [--connections 5000] [--rounds 6] [--queries 2000]

Rounds alternate: alone, beside idle connections, beside dripping ones. An idle connection says
nothing. A dripping one sends a byte of the head of a request every two seconds, and opens itself
anew when it is ended for that.
"""

import argparse
import resource
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from subprocess import PIPE, Popen

from tests.bench.exposure.served import started
from tests.controlplane.serving import post, query

KINDS = ("alone", "idle", "dripping")
DRIP_S = 2.0
HEAD = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nX-Filler: " + b"z" * 1_000


def allow_files(count: int) -> None:
    """Raise the limit on open files as far as it may be, and say where that is too little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = count + 256 if hard == resource.RLIM_INFINITY else min(hard, count + 256)
    if soft != resource.RLIM_INFINITY and soft < top:
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))
    if top < count + 256:
        sys.exit(f"{count} connections need more open files than the hard limit of {hard} allows")


def crowd(port: int, count: int, drips: bool) -> None:
    """Hold connections until standard input is closed."""
    allow_files(count)
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    print("there", flush=True)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    sent, at = [0] * count, 0
    while not selector.select(0 if drips else 3600):
        if not drips:
            continue
        for _ in range(max(1, count // 500)):  # every 4 ms a few
            try:
                held[at].send(HEAD[sent[at] : sent[at] + 1])
                sent[at] += 1
            except OSError:
                held[at].close()
                held[at], sent[at] = socket.create_connection(("127.0.0.1", port)), 0
            at = (at + 1) % count
        time.sleep(DRIP_S / 500)


@contextmanager
def beside(port: int, count: int, kind: str) -> Iterator[None]:
    if kind == "alone":
        yield
        return
    command = [sys.executable, "-m", __spec__.name, "--crowd", str(port), "--kind", kind]
    with Popen(
        [*command, "--connections", str(count)], stdin=PIPE, stdout=PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        try:
            yield
        finally:
            child.communicate("")


def latencies_ms(port: int, count: int) -> list[float]:
    """Of lone queries, one after another, on one connection."""
    found = []
    asked = post(query())
    with socket.create_connection(("127.0.0.1", port)) as own:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            began_s = time.perf_counter()
            own.sendall(asked)
            answer = own.recv(65_536)
            found.append((time.perf_counter() - began_s) * 1_000)
            assert answer.startswith(b"HTTP/1.1 200"), answer
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--crowd", type=int, help="port; for the benchmark's own children")
    parser.add_argument("--kind", default="")
    given = parser.parse_args()
    if given.crowd:
        crowd(given.crowd, given.connections, given.kind == "dripping")
        return
    allow_files(given.connections)
    p50: dict[str, list[float]] = {kind: [] for kind in KINDS}
    p99: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with started() as (port, _):
        latencies_ms(port, given.queries)
        for _ in range(given.rounds):
            for kind in KINDS:
                with beside(port, given.connections, kind):
                    time.sleep(1.5)  # a sweep has seen them
                    found = latencies_ms(port, given.queries)
                p50[kind].append(median(found))
                p99[kind].append(quantiles(found, n=100)[98])
                time.sleep(0.5)
    print(f"{given.connections} connections, {given.rounds} rounds of {given.queries} queries")
    print("| beside | p50 ms | p99 ms | p99 against alone, by rounds | median |")
    print("|---|--:|--:|---|--:|")
    for kind in KINDS:
        ratios = [one / alone for one, alone in zip(p99[kind], p99["alone"], strict=True)]
        shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"| {kind} | {median(p50[kind]):.3f} | {median(p99[kind]):.3f} | {shown} |"
            f" {median(p99[kind]) / median(p99['alone']):.2f} |"
        )


if __name__ == "__main__":
    main()
