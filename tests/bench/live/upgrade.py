"""Queries while everything is replaced: ``python -m tests.bench.live.upgrade``.

Two workers of one core serve the example task to clients that ask all the time, each on a
connection that it keeps, and to ``--anew`` more that open one for each query. Then ``modelless
upgrade`` replaces workers, gateway and control loop. Two releases cannot be had in one bench: what
is new differs by a setting. Printed are queries, those that got no answer, refusals, and the
longest time in which no client got an answer, for each part.

The first start trains and measures the example, for some minutes; ``--state`` names a state
directory in which that was done, which is copied.
"""

import argparse
import http.client
import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

from tests.integration.deployment import CLI, Deployment, ask, deployed, environment
from tests.integration.deployment import short_directory as folder

BODY = {"task": "digits", "slo": {"latency_ms": 10_000}, "inputs": [[0.0] * 64]}
BEFORE, AFTER = "before", "after"


class Clients:
    """Ask one query after another and note how each ended, by the part that is being replaced."""

    def __init__(self, running: Deployment, count: int, pause_s: float, anew: int = 0) -> None:
        """``anew``: so many more, of which each opens a connection for each query."""
        self._running = running
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.part = BEFORE
        self.outcomes: dict[str, Counter[str]] = {}
        self.gap_s: dict[str, float] = {}
        self._answered_s = time.monotonic()
        self._threads = [
            threading.Thread(target=self._ask, args=(number >= count,))
            for number in range(count + anew)
        ]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, anew: bool) -> None:
        connection = self._running.connection(60.0)
        while not self._stop.is_set():
            began_s, kept = time.monotonic(), connection.sock is not None
            try:
                answer = ask(connection, "POST", "/v1/query", json.dumps(BODY).encode())
                outcome = "answered" if answer.status == 200 else str(answer.body["code"])
            except (OSError, http.client.HTTPException) as error:
                when = "over a connection that was kept" if kept else "over a new connection"
                if not kept and connection.sock is None:
                    when = "while it connected"
                outcome = f"lost {when}, after {time.monotonic() - began_s:.1f} s: {error!r}"
                connection.close()
            if anew:
                connection.close()
            self._note(outcome)
            self._stop.wait(self._pause_s)
        connection.close()

    def _note(self, outcome: str) -> None:
        with self._lock:
            self.outcomes.setdefault(self.part, Counter())[outcome] += 1
            if outcome == "answered":
                now_s = time.monotonic()
                gap_s = now_s - self._answered_s
                self.gap_s[self.part] = max(self.gap_s.get(self.part, 0.0), gap_s)
                self._answered_s = now_s


def upgrade(running: Deployment, clients: Clients) -> int:
    """Run it and follow what it says."""
    settings = {"grpc_port": running.grpc_port, "slices": "2xcpu-1", "eviction": "lru"}
    command = subprocess.Popen(
        [*CLI, "upgrade"],
        env=environment(running.state_dir, running.port, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert command.stdout is not None
    for line in command.stdout:
        print(f"    {line.strip()}")
        for part in ("workers", "gateways", "control loop"):
            if line.strip().startswith(part):
                clients.part = part
    return command.wait()


def show(clients: Clients, seconds: float, code: int) -> None:
    print(f"\n`modelless upgrade` took {seconds:.0f} s and ended with {code}\n")
    print("| part | queries | answered | refused | lost | longest gap, s |")
    print("|---|--:|--:|--:|--:|--:|")
    total: Counter[str] = Counter()
    rows = [*clients.outcomes.items()]
    for _, found in rows:
        total += found
    for part, found in [*rows, ("**all**", total)]:
        lost = sum(count for name, count in found.items() if name.startswith("lost"))
        refused = found.total() - found["answered"] - lost
        gap_s = max(clients.gap_s.values()) if part == "**all**" else clients.gap_s.get(part, 0.0)
        print(
            f"| {part} | {found.total()} | {found['answered']} | {refused} | {lost} | {gap_s:.2f} |"
        )
    for name, count in total.items():
        if name != "answered":
            print(f"\n{count} x {name}")


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--clients", type=int, default=4)
    asked.add_argument("--anew", type=int, default=0, help="clients that keep no connection")
    asked.add_argument("--pause-s", type=float, default=0.02)
    asked.add_argument("--state", type=Path, help="a state directory with the digits in it")
    chosen = asked.parse_args()
    with folder() as home:
        if chosen.state:
            shutil.copytree(chosen.state, home / "s")
        arguments = ["--slices", "2xcpu-1"]
        arguments += [] if chosen.state else ["--example", "digits"]
        with (
            deployed(home / "s", arguments=arguments, start_s=1_800.0) as running,
            Clients(running, chosen.clients, chosen.pause_s, chosen.anew) as clients,
        ):
            time.sleep(5.0)
            began_s = time.monotonic()
            code = upgrade(running, clients)
            took_s = time.monotonic() - began_s
            clients.part = AFTER
            time.sleep(5.0)
    show(clients, took_s, code)


if __name__ == "__main__":
    main()
