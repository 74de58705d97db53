"""What a worker remembers of loads and evictions for queries."""

from dataclasses import replace
from pathlib import Path

from planner.eviction.rules import Resident
from tests.workers.builders import config, echo_spec, running
from variants.types import TaskName, VariantName
from workers.execution.history import History
from workers.types import Occurrence, OccurrenceKind

T, V = TaskName("t"), VariantName("v")


def resident() -> Resident[int]:
    return Resident(
        key=1, memory_mib=20.0, load_s=0.5, popularity=0.25, last_used_s=0.0, in_use=False,
        loaded_s=0.0,
    )  # fmt: skip


def test_it_is_numbered_and_says_why() -> None:
    history = History()
    history.loaded(T, V, "50 ms, accuracy 97.00 %", 0.024)
    history.evicted(T, V, resident(), "t/u")
    assert history.untold() == [
        Occurrence(
            seq=1,
            kind=OccurrenceKind.LOADED_ON_DEMAND,
            task=T,
            variant=V,
            why="for a query (50 ms, accuracy 97.00 %), in 0.024 s",
        ),
        Occurrence(
            seq=2,
            kind=OccurrenceKind.EVICTED,
            task=T,
            variant=V,
            why="made room for t/u: it was worth less here "
            "(0.25 queries/s, loads in 0.5 s, 20.0 MiB)",
        ),
    ]
    assert history.newest == 2


def test_what_is_told_is_forgotten_and_the_rest_is_kept() -> None:
    history = History()
    for _ in range(4):
        history.loaded(T, V, "", 0.1)
    assert [one.seq for one in history.untold(told=(1, 3), after=0)] == [2, 4]
    assert [one.seq for one in history.untold(after=2)] == [4]
    assert [one.seq for one in history.untold()] == [2, 4]


def test_where_nothing_asks_the_oldest_go() -> None:
    history = History(kept=3)
    for _ in range(5):
        history.loaded(T, V, "", 0.1)
    assert [one.seq for one in history.untold()] == [3, 4, 5]


async def test_a_load_for_a_query_and_its_victim_are_asked_for_over_the_channel(
    tmp_path: Path,
) -> None:
    a = replace(echo_spec(), variant=VariantName("a"), memory_mib=60.0)
    b = replace(echo_spec(), variant=VariantName("b"), memory_mib=60.0)
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(a, 60.0)  # the plan's load is the control loop's to tell
        assert await connection.history((), 0, 60.0) == []
        await connection.load(b, 60.0, make_room=True, need="50 ms")
        found = await connection.history((), 0, 60.0)
        assert [(one.kind, one.variant) for one in found] == [
            (OccurrenceKind.EVICTED, "a"),
            (OccurrenceKind.LOADED_ON_DEMAND, "b"),
        ]
        assert found[0].why.startswith("made room for task/b: ")
        assert found[1].why.startswith("for a query (50 ms), in ")
        assert host.status().occurrences == 2
        # Joining or repeating a load is none.
        await connection.load(b, 60.0, make_room=True)
        assert await connection.history([1, 2], 0, 60.0) == []
