"""What a control loop and a gateway call while nobody asks, counted rather than timed.

``python -m tests.bench.fronts.at_rest`` runs each of the two by itself over a real worker, a real
Valkey and SQLite, and counts calls of Python functions and of built-in ones in all of its threads,
and wake-ups of its event loop, which is asyncio's own here. Counts are the same on every machine
and under nearly every load. ``--qps`` has a gateway report so many queries to the control loop.
``--beside FOLDER`` counts another version of the sources as well.
"""

import argparse
import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from controlplane.live_state import LiveState
from tests.controlplane.fleet import KIND, Fleet, eventually, fleet, gateway
from tests.ports import free_port
from variants.catalog.sql import open_catalog

MODELS = "abcd"
SETTLE_S = 10.0
THREADS = 8
"""More than there are in the pool of the event loop."""


class Calls:
    """Of all threads of this process, from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self.python = 0
        self.built_in: Counter[str] = Counter()

    def _note(self, _: FrameType, event: str, called: Any) -> None:
        if event == "call":
            self.python += 1
        elif event == "c_call":
            self.built_in[getattr(called, "__qualname__", "")] += 1

    async def begin(self) -> None:
        def here() -> None:
            sys.setprofile(self._note)
            time.sleep(0.05)  # so that each thread of the pool gets one

        await asyncio.gather(*(asyncio.to_thread(here) for _ in range(THREADS)))
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def end(self, what: str, each: float) -> None:
        """Print what was counted.

        Args:
            each: turns, or seconds.
        """
        sys.setprofile(None)
        threading.setprofile(None)
        print(
            f"{what}: {self.python / each:,.0f} calls of Python functions,"
            f" {self.built_in.total() / each:,.0f} of built-in ones,"
            f" {self.built_in['epoll.poll'] / each:.1f} wake-ups",
            flush=True,
        )


async def count_loop(it: Fleet, seconds: float, qps: float) -> None:
    turns = 0
    loop = it.control().loop
    turn: Callable[[], Any] = loop.turn

    async def counted() -> Any:
        nonlocal turns
        turns += 1
        return await turn()

    loop.turn = counted  # type: ignore[method-assign]
    reporting = asyncio.create_task(_report(it.valkey.url, qps))
    await asyncio.sleep(SETTLE_S)
    calls, before = Calls(), turns
    await calls.begin()
    await asyncio.sleep(seconds)
    calls.end("a turn of the control loop", turns - before)
    reporting.cancel()


async def _report(url: str, qps: float) -> None:
    """Be a gateway, as far as the control loop hears of it."""
    live, began_s, key = LiveState(url), time.monotonic(), "digits|50.0|"
    while True:
        now_s = time.monotonic()
        told = {"demand": {key: int(qps * (now_s - began_s))}, "tightest": {key: 50.0}}
        await live.put_gateway("g", {**(told if qps else {}), "at_s": now_s, "busy": 0.01})
        await asyncio.sleep(1.0)


async def count_gateway(it: Fleet, seconds: float) -> None:
    await eventually(lambda: it.cluster.workers([KIND]))
    there = await it.cluster.workers([KIND])
    await it.live.put_workers(1, [asdict(worker) for worker in there])
    async with gateway(it):
        await asyncio.sleep(SETTLE_S)
        calls = Calls()
        await calls.begin()
        await asyncio.sleep(seconds)
        calls.end("a second of the gateway", seconds)


async def count(what: str, seconds: float, qps: float) -> None:
    with tempfile.TemporaryDirectory(prefix="ml-") as name:
        catalog = open_catalog(f"sqlite:///{name}/catalog.db")
        async with fleet(Path(name), catalog=catalog, port=free_port()) as it:
            it.settings.tick_s = 1.0
            for model in MODELS:
                it.register(model)
            await (
                count_gateway(it, seconds) if what == "gateway" else count_loop(it, seconds, qps)
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fronts.at_rest")
    parser.add_argument("--beside", type=Path, help="a folder with another version of the sources")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--qps", type=float, default=0.0)
    parser.add_argument("--only", choices=("loop", "gateway"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        logging.disable()
        with suppress(KeyboardInterrupt):
            asyncio.run(count(given.only, given.seconds, given.qps))
        return
    for name, folder in {"here": Path.cwd(), "beside": given.beside}.items():
        if folder is None:
            continue
        print(f"{name}:", flush=True)
        for only in ("loop", "gateway"):
            subprocess.run(
                [sys.executable, __file__, "--only", only, "--seconds", str(given.seconds),
                 "--qps", str(given.qps)],
                cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, check=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
