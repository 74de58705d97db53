"""A gateway's front whose only worker says what a script has it say, at moments of the script.

``python -m tests.bench.fronts.refusing`` prints its port, then reads the name of a way to refuse
from each line of its input and says when it is ready for it; ``tests.bench.fronts.refusals`` counts
what each takes. The channel to the worker and the worker are left out, HTTP and the event loop are
not.
"""

import asyncio
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import uvloop

from controlplane.gateway.http import client_connection
from controlplane.gateway.http.access import Access
from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.http.http_protocol import Front, front_factory
from controlplane.gateway.http.http_server import HttpServer
from controlplane.gateway.http.turn_clock import TurnClock
from controlplane.gateway.protection.compression import Inflater
from controlplane.gateway.protection.connections import ConnectionCaps
from controlplane.gateway.query.query_path import QueryPath
from controlplane.settings import load_settings
from planner.selection.routes import EMPTY
from tests.bench.fronts.servers import asgi
from tests.planner.builders import NOW_MS, catalog, key, profile, snapshot, task, variant, worker
from variants.types import TaskName, TensorSpec, WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.host import settle_memory
from workers.types import ReplyCode

WIDTH = 3_072
LATENCY_MS = 30.0
LONG_MS = 1e6
"""Longer than anything is remembered."""


class Way(NamedTuple):
    """How queries come to be refused."""

    step_ms: float = 0.0
    """By so much each query is later than the one before."""
    backlog_ms: float = 20.0
    """What the worker says to have to do, when it refuses."""
    late_ms: float = 0.0
    """So late the worker answers; 0: it refuses, at once."""
    told: bool = False
    """Whether clients come back sooner than they were told."""
    lapsed: bool = False
    """Whether the last refusal has stopped to hold when a query comes."""
    outdated: bool = False
    """Whether there may be more room for each query than there was for the one before."""


WAYS = {
    "standing": Way(),
    "too long a queue": Way(backlog_ms=LONG_MS, outdated=True),
    "no room still": Way(backlog_ms=5.0, lapsed=True),
    "no room": Way(backlog_ms=5.0, outdated=True),
    "too soon": Way(told=True),
    "refused by the worker": Way(step_ms=200.0),
    "too late": Way(step_ms=200.0, late_ms=40.0),
}


@dataclass(slots=True)
class Clock:
    now_ms: float = NOW_MS

    def __call__(self) -> float:
        return self.now_ms


class ScriptedTurn(TurnClock):
    def lain_ms(self, told_ms: float) -> float:
        """0: for how long bytes lay in the kernel, its own clock says."""
        del told_ms
        return 0.0


class Scripted:
    """The front, and the connection to its worker."""

    heard_s = 0.0

    def __init__(self) -> None:
        self.clock = Clock()
        self.way = Way()
        self.path = QueryPath(loader=cast(Any, None), clock_ms=self.clock)
        spec = TensorSpec(name="x", dtype="float32", shape=(WIDTH,))
        self.task = replace(task(), inputs=(spec,))
        self.begin(Way())

    def begin(self, way: Way) -> None:
        """From now on queries are refused in this way."""
        self.way = way
        self.clock.now_ms += LONG_MS
        held = {key("a")}
        seen = snapshot(catalog([variant("a")], [profile("a")]), (worker("w1"), held))
        self.path.update(
            snapshot=seen,
            routes=EMPTY,
            tasks={TaskName(self.task.name): self.task},
            connections={WorkerId("w1"): cast(WorkerConnection, self)},
        )

    def infer(self, *asked: Any) -> None:
        """As ``WorkerConnection.infer``."""
        replied: Callable[[Reply], None] = asked[4]
        if self.way.late_ms:
            self.clock.now_ms += self.way.late_ms
            replied(Reply(ReplyCode.OK, 1, 20, 10, 0, "", []))
        else:
            backlog_us = int(1_000 * self.way.backlog_ms)
            replied(Reply(ReplyCode.OVERLOADED, 0, 0, 0, backlog_us, "no room", []))

    def catch_up(self) -> None:
        """As ``WorkerSession.catch_up``."""

    def _end_refusals(self) -> None:
        for found in self.path.repeated._kept.values():
            found.holds.until_ms = self.clock.now_ms

    def told_from_ms(self) -> float:
        """From when clients count how long they are to wait."""
        return self.clock.now_ms - (0.0 if self.way.told else LONG_MS)

    def front(self, folder: str, port: int) -> type[Front]:
        settings = load_settings(state_dir=folder, port=port)
        most = int(settings.max_body_mib * 2**20)
        caps = ConnectionCaps.of(settings)
        bound = front_factory(self.path, Access(settings), most, caps, Inflater(most))
        clock = self.clock

        def data_received(front: Front, data: bytes) -> None:
            if front.between:
                clock.now_ms += self.way.step_ms
            if self.way.outdated:
                self.path.repeated.outdate()
            if self.way.lapsed:
                self._end_refusals()
            bound.data_received(front, data)

        turn = ScriptedTurn(clock, self.path.catch_up)
        return type("ScriptedFront", (bound,), {"data_received": data_received, "turn": turn})

    async def serve(self) -> None:
        """Until the input ends."""
        client_connection.monotonic_ms = self.told_from_ms  # type: ignore[attr-defined]
        with tempfile.TemporaryDirectory() as folder, socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            listening.setblocking(False)
            port = listening.getsockname()[1]
            limits = ClientLimits(sweep_s=3_600.0)
            server = HttpServer(asgi, self.front(folder, port), listening, None, limits)
            print(port, flush=True)
            loop = asyncio.get_running_loop()

            def begin(name: str) -> None:
                self.begin(WAYS[name])
                print("ready", flush=True)

            def listen() -> None:
                for line in sys.stdin:
                    loop.call_soon_threadsafe(begin, line.strip())
                loop.call_soon_threadsafe(setattr, server, "should_exit", True)

            threading.Thread(target=listen, daemon=True).start()
            await server.run_here()


if __name__ == "__main__":
    scripted = Scripted()
    settle_memory()
    uvloop.run(scripted.serve())
