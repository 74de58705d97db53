"""A disk that fills up and a catalog that cannot be written, look by look."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from controlplane.controller.events.answer_pace import LOOKS, SLOW_MS, AnswerPace
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.loop_report import LoopReport
from controlplane.controller.events.storage_watch import PATIENCE_S, StorageWatch
from controlplane.live_state import LiveState
from planner.types import Decision
from tests.planner.builders import catalog as snapshot
from tests.planner.builders import observation
from variants.catalog.memory import MemoryCatalog
from variants.disk import DiskRoom
from variants.errors import StateUnavailable
from variants.types import Event, Plan, TickRecord

MIB = 2**20


def room(free_mib: int) -> DiskRoom:
    """Of a disk of 1,000 MiB, which is nearly full below 50 and has room again from 60 on."""
    return DiskRoom(
        of="state", folder="/srv", host="h1", free_bytes=free_mib * MIB, size_bytes=1_000 * MIB
    )


def test_a_disk_that_hovers_at_the_bound_is_told_once() -> None:
    watch = StorageWatch()
    told = [list(watch.rooms([room(free)])) for free in (70, 49, 51, 49, 61, 70)]
    where = "MiB free (/srv on h1)"
    assert told == [
        [],
        [
            (
                "disk_nearly_full", "state",
                f"The disk of the state directory has 49 of 1,000 {where}: free some space",
            )
        ],
        [],
        [],
        [
            (
                "disk_has_room", "state",
                f"The disk of the state directory has 61 of 1,000 {where} again",
            )
        ],
        [],
    ]  # fmt: skip


def test_a_write_that_fails_once_is_no_news() -> None:
    watch = StorageWatch()
    assert list(watch.written("the database is locked", 0.0)) == []
    assert list(watch.written("", 1.0)) == []
    assert list(watch.written("the database is locked", 2.0)) == []
    assert list(watch.written("the database is locked", 2.0 + PATIENCE_S / 2)) == []


def test_a_catalog_that_cannot_be_written_is_told_when_it_begins_and_ends() -> None:
    watch = StorageWatch()
    list(watch.written("the disk is full.", 0.0))
    assert list(watch.written("the disk is full.", PATIENCE_S)) == [
        (
            "catalog_unwritable",
            "catalog",
            "the disk is full; queries go on, and what has to be kept waits in memory",
        )
    ]
    assert list(watch.written("the disk is full.", 60.0)) == []
    assert list(watch.written("", 90.0)) == [
        ("catalog_writable", "catalog", "it can be written again after 90 s")
    ]
    assert list(watch.written("", 91.0)) == []


class FullDisk(MemoryCatalog):
    """Reads, and takes no event while it is full."""

    full = True

    def add_event(self, *events: Event) -> None:
        if self.full:
            where = "sqlite+pysqlite:////srv/catalog.db"
            raise StateUnavailable(
                f"the catalog at {where} is not available: database or disk is full"
            )
        super().add_event(*events)


class Told(LiveState):
    """Keeps what the control loop tells of itself."""

    def __init__(self) -> None:
        self.controllers: list[Mapping[str, Any]] = []

    async def put_controller(self, told: Mapping[str, Any]) -> None:
        self.controllers.append(told)


async def test_the_events_of_a_full_disk_wait_until_it_has_room() -> None:
    catalog, live, now_s, free = FullDisk(), Told(), [0.0], [10]
    journal = Journal(catalog)
    report = LoopReport(live, journal, lambda: (room(free[0]),), lambda: now_s[0], lambda: 1_000.0)

    async def turn(at_s: float) -> None:
        now_s[0] = at_s
        try:
            await journal.store_events()
        except StateUnavailable as error:
            journal.trouble("writing", error)
        else:
            journal.over("writing")
        await report.turned(None)

    for at_s in (0.0, 1.0, 1.0 + PATIENCE_S):
        await turn(at_s)
    assert live.controllers[-1]["unwritable"] == "database or disk is full"
    assert live.controllers[-1]["rooms"][0]["free_bytes"] == 10 * MIB
    assert catalog.events(10) == ()

    catalog.full, free[0] = False, 500
    for at_s in (20.0, 21.0):
        await turn(at_s)
    assert live.controllers[-1]["unwritable"] == ""
    assert [event.kind for event in reversed(catalog.events(10))] == [
        "disk_nearly_full", "catalog_unwritable", "disk_has_room", "catalog_writable",
    ]  # fmt: skip


async def test_a_database_that_is_away_takes_nothing_and_is_told_of_as_lost_alone() -> None:
    """It counted as writable, because nothing had been tried."""
    catalog, live = MemoryCatalog(), Told()
    journal = Journal(catalog)
    report = LoopReport(live, journal, tuple, lambda: 100.0, lambda: 1_000.0)
    where = "postgresql+psycopg://srv/catalog"
    journal.trouble(
        "catalog", StateUnavailable(f"the catalog at {where} is not available: it is down")
    )
    await report.turned(None)
    assert live.controllers[-1]["unwritable"] == "it is down"

    journal.over("catalog")
    await report.turned(None)
    assert live.controllers[-1]["unwritable"] == ""
    assert dict(journal.told) == {}


class FullForTicks(MemoryCatalog):
    """Takes no tick while it is full."""

    full = False

    def add_tick(self, record: TickRecord) -> None:
        if self.full:
            raise StateUnavailable("the catalog at /srv is not available: database is full")
        super().add_tick(record)


class Turns:
    """Turns of a control loop of which the journal is left, and the disk."""

    def __init__(self) -> None:
        self.catalog, self.live, self.free_mib = FullForTicks(), Told(), 500
        self._now_s = 0.0
        self._journal = Journal(self.catalog)
        self._report = LoopReport(
            self.live, self._journal, lambda: (room(self.free_mib),), lambda: self._now_s,
            lambda: 1_000.0,
        )  # fmt: skip

    async def at(self, now_s: float, *, changed: bool = False) -> str:
        """Take a turn; why the catalog cannot be written, as gateways are told."""
        self._now_s = now_s
        plan = Plan(version=1, epoch=1, placements=(), workers={})
        decision = Decision(plan=plan, changed=changed, actions=())
        seen = replace(observation(snapshot([], [])), now_s=now_s)
        try:
            await self._journal.store(seen, decision, (), epoch=1, version=1)
        except StateUnavailable as error:
            self._journal.trouble("writing", error)
        else:
            self._journal.over("writing")
        await self._report.turned(None)
        return str(self.live.controllers[-1]["unwritable"])


async def test_a_disk_that_is_full_shows_soon_where_nothing_else_is_written() -> None:
    """Nothing was written for a minute where nothing happened."""
    turns = Turns()
    assert [await turns.at(at_s) for at_s in (0.0, 1.0, 20.0)] == ["", "", ""]
    assert len(turns.catalog.ticks(10)) == 1

    turns.catalog.full, turns.free_mib = True, 0
    assert [await turns.at(at_s) for at_s in (21.0, 22.0)] == ["", "database is full"]

    turns.catalog.full, turns.free_mib = False, 500
    assert await turns.at(23.0) == ""


async def test_a_turn_that_writes_nothing_does_not_show_that_it_could() -> None:
    """The catalog counted as writable again with the next turn in which nothing happened."""
    turns = Turns()
    assert await turns.at(0.0) == ""

    turns.catalog.full = True
    assert await turns.at(1.0, changed=True) == "database is full"
    assert [await turns.at(at_s) for at_s in (2.0, 3.0)] == ["database is full"] * 2

    turns.catalog.full = False
    assert await turns.at(4.0) == ""


def test_a_catalog_is_slow_after_some_slow_looks_in_a_row_and_until_as_many_quick_ones() -> None:
    pace = AnswerPace()

    def looks(count: int, took_ms: float) -> float:
        for _ in range(count):
            pace.answered(took_ms)
        return pace.slow_ms()

    assert looks(LOOKS - 1, 4 * SLOW_MS) == 0.0
    assert looks(1, 2.0) == 0.0
    assert looks(LOOKS, 4 * SLOW_MS) == 4 * SLOW_MS
    assert looks(LOOKS - 1, 2.0) == 4 * SLOW_MS
    assert looks(1, 2.0) == 0.0


async def test_a_slow_catalog_is_told_when_it_begins_and_ends() -> None:
    catalog, live, now_s = MemoryCatalog(), Told(), [0.0]
    journal = Journal(catalog)
    report = LoopReport(live, journal, tuple, lambda: now_s[0], lambda: 1_000.0)

    async def turn(took_ms: float) -> float:
        now_s[0] += 10.0
        report.catalog_pace.answered(took_ms)
        await report.turned(None)
        return float(live.controllers[-1]["slow_ms"])

    slow = [await turn(1_040.0) for _ in range(LOOKS + 2)]
    quick = [await turn(2.0) for _ in range(LOOKS)]
    await journal.store_events()

    assert slow == [*[0.0] * (LOOKS - 1), 1_040.0, 1_040.0, 1_040.0]
    assert quick == [*[1_040.0] * (LOOKS - 1), 0.0]
    assert [(event.kind, event.message) for event in reversed(catalog.events(10))] == [
        (
            "catalog_slow",
            "it takes 1,040 ms to give one row; "
            "queries go on, plans, registrations and commands take longer",
        ),
        ("catalog_quick", "it is slow no more after 70 s"),
    ]


async def test_a_slow_live_state_is_told_when_it_begins_and_ends() -> None:
    """Nothing told of it: workers that joined stayed unknown for seconds, without a reason."""
    catalog, live, now_s = MemoryCatalog(), Told(), [0.0]
    journal = Journal(catalog)
    report = LoopReport(live, journal, tuple, lambda: now_s[0], lambda: 1_000.0)

    async def turn(took_ms: float) -> float:
        now_s[0] += 10.0
        report.live_pace.answered(took_ms)
        await report.turned(None)
        return float(live.controllers[-1]["live_slow_ms"])

    slow = [await turn(740.0) for _ in range(LOOKS + 2)]
    quick = [await turn(2.0) for _ in range(LOOKS)]
    await journal.store_events()

    assert slow == [*[0.0] * (LOOKS - 1), 740.0, 740.0, 740.0]
    assert quick[-1] == 0.0
    assert [(event.kind, event.message) for event in reversed(catalog.events(10))] == [
        (
            "live_state_slow",
            "it takes 740 ms to give one key; queries go on, gateways hear of new workers and "
            "plans of the demand later, commands take longer",
        ),
        ("live_state_quick", "it is slow no more after 70 s"),
    ]
