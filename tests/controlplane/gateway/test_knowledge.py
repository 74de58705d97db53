"""What a gateway knows of its workers, and what it costs the event loop to keep up with them."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from controlplane.gateway.background import TURN_MS, in_turns
from controlplane.gateway.knowledge import Knowledge
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.renewal import Renewal
from controlplane.settings import load_settings
from planner.types import Choice, Snapshot
from tests.planner.builders import DIGITS, catalog, kind, profile, query, variant
from variants.types import ReplicaState, VariantName, WorkerId
from workers.channel.round_trip import RoundTrip
from workers.types import ReplicaStatus, WorkerStatus


def status(name: str, *variants: str, batches: int = 0) -> WorkerStatus:
    """A worker with these variants of one task, of which so many batches ran."""
    return WorkerStatus(
        worker=name, device_kind="cpu-1", memory_mib=1_000.0, reserved_mib=0.0, draining=False,
        backlog_us=0, busy_ratio=0.1,
        replicas=tuple(
            ReplicaStatus(
                task=DIGITS, variant=VariantName(each), state=ReplicaState.READY, memory_mib=1.0,
                batches=batches, latency=((1, 10.0, 10.0),) if batches else (),
            )
            for each in variants
        ),
    )  # fmt: skip


class Fleet:
    """A gateway's knowledge of workers that no process runs."""

    def __init__(self, *variants: str) -> None:
        self.path = QueryPath(loader=cast(Any, None))
        self.known = Knowledge(
            load_settings(), cast(Any, None), cast(Any, None), b"", self.path, lambda _: None
        )
        self.known.catalog = catalog(
            [variant(name) for name in variants],
            [profile(name) for name in variants],
            kinds=[kind()],
        )
        self.known.meeting.over()
        self.made: list[Snapshot] = []
        update = self.path.update

        def counted(**parts: Any) -> None:
            self.made.append(parts["snapshot"])
            update(**parts)

        self.path.update = counted  # type: ignore[method-assign]

    def join(self, name: str, *variants: str) -> None:
        connection = SimpleNamespace(
            status=status(name, *variants), round_trip=RoundTrip(), return_ms=0.0, heard_s=1e9,
            hand_back=lambda: None, ping=lambda: 1, follow=lambda *_: None,
        )  # fmt: skip
        self.known.workers._pool.connections[WorkerId(name)] = cast(Any, connection)
        self.known.workers.joined(WorkerId(name), cast(Any, connection))

    def leave(self, name: str) -> None:
        connection = self.known.workers._pool.connections.pop(WorkerId(name))
        self.known.workers.left(WorkerId(name), connection, "gone")


async def test_a_snapshot_is_made_once_for_all_workers_that_join_or_leave_in_a_turn() -> None:
    fleet = Fleet("v")
    for number in range(20):
        fleet.join(f"w{number}", "v")
    fleet.leave("w0")
    await asyncio.sleep(0.01)
    assert [len(made.workers) for made in fleet.made] == [19]


async def test_nothing_is_sent_to_a_worker_that_has_left_in_the_same_turn() -> None:
    fleet = Fleet("v")
    for name in ("w1", "w2", "w3"):
        fleet.join(name, "v")
    await asyncio.sleep(0.01)
    fleet.leave("w1")
    fleet.leave("w2")
    for draw in range(20):
        found = fleet.path.choose(query(latency_ms=100.0, draw=draw), 0.0)
        assert isinstance(found, Choice)
        assert found.worker.id == "w3"


async def test_what_takes_long_is_made_again_after_as_long_unless_somebody_cannot_wait() -> None:
    now_s, told = [0.0], list[str]()

    def make() -> None:
        told.append("made")
        now_s[0] += 0.02

    renewal = Renewal(make, lambda: now_s[0])
    renewal.soon(lambda: told.append("then"))
    renewal.soon()
    await asyncio.sleep(0)
    assert told == ["made", "then"]
    renewal.soon()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert told == ["made", "then"]
    assert renewal.if_due()
    assert not renewal.if_due()
    renewal.soon()
    await asyncio.sleep(0.05)
    assert told == ["made", "then", "made", "made"]


async def test_long_work_lets_the_loop_turn_whenever_it_has_taken_long_enough() -> None:
    now_ms = [0.0]
    turns: list[float] = []

    def turn() -> None:
        turns.append(now_ms[0])
        asyncio.get_running_loop().call_soon(turn)

    def steps() -> Iterator[None]:
        for _ in range(6):
            now_ms[0] += TURN_MS / 2
            yield

    turn()
    await in_turns(steps(), lambda: now_ms[0])
    assert turns[:4] == [0.0, TURN_MS, 2 * TURN_MS, 3 * TURN_MS]
