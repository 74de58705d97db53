"""Two installations on one catalog: the second one says so, and waits until the first is gone."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane.cli.starting import refuse_company
from controlplane.controller.events.journal import Journal
from controlplane.controller.other_installations import (
    AGAIN_S,
    BEHIND_S,
    REPLACED_S,
    SILENT_S,
    claimed_by_another,
    leads,
    led_by_another_cluster,
    led_by_newer_cluster,
    may_be_behind_s,
    other_installation,
    owner_of,
    until_alone,
    writes_on,
)
from controlplane.live_state import LiveState
from controlplane.settings import load_settings
from controlplane.timestamps import timestamp
from variants.catalog.memory import MemoryCatalog
from variants.errors import Conflict
from variants.types import Event, TickRecord
from workers.channel.secret import ensure_secret

NOW_S = 1_800_000_000.0
OURS, THEIRS = owner_of(b"a" * 32, "controller#1"), owner_of(b"b" * 32, "controller#2")
ELSEWHERE = THEIRS.replace(THEIRS.split()[1], "another-host")


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW_S + seconds, UTC).isoformat(timespec="milliseconds")


def led_by(owner: str, *, heard_s: float = -5.0, stopped: bool = False) -> MemoryCatalog:
    """A catalog whose leader wrote its last tick then, and was told to stop or not."""
    catalog = MemoryCatalog()
    catalog.acquire_leadership(owner)
    catalog.add_event(Event(at=at(-60), kind="controller_started", subject="epoch 1", message=""))
    catalog.add_tick(TickRecord(at=at(heard_s), plan_version=1, body={"epoch": 1}))
    if stopped:
        event = Event(at=at(-1), kind="controller_stopped", subject="epoch 1", message="")
        catalog.add_event(event)
    return catalog


def test_another_one_that_was_just_heard_is_named() -> None:
    said = other_installation(OURS, led_by(THEIRS), NOW_S)

    assert said is not None
    assert said.startswith(f"another installation, on {THEIRS.split()[1]}, plans by the same")
    assert "was heard 5 s ago" in said
    assert "MODELLESS_DATABASE_URL" in said


@pytest.mark.parametrize(
    "catalog",
    [
        MemoryCatalog(),
        led_by(owner_of(b"a" * 32, "controller#0")),
        led_by(THEIRS, stopped=True),
        led_by(THEIRS, heard_s=-SILENT_S - 1),
        led_by("of a version that named no installation"),
    ],
    ids=["nobody", "ourselves", "stopped", "silent", "unknown"],
)
def test_there_is_no_other(catalog: MemoryCatalog) -> None:
    assert other_installation(OURS, catalog, NOW_S) is None


def test_who_plans_by_the_catalog_that_this_one_was_restored_from_is_no_other() -> None:
    catalog = led_by(THEIRS)
    catalog.add_event(Event(at=at(-3), kind="restored", subject="catalog", message=""))
    assert other_installation(OURS, catalog, NOW_S) is None

    catalog.add_tick(TickRecord(at=at(-1), plan_version=1, body={"epoch": 1}))
    assert other_installation(OURS, catalog, NOW_S) is not None  # it was heard since


def test_up_refuses_to_start_beside_another_one(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path)
    ensure_secret(settings.secret_path)
    refuse_company(settings, led_by(THEIRS, stopped=True))
    catalog = led_by(THEIRS)
    newest = TickRecord(at=timestamp(), plan_version=1, body={"epoch": 1})
    catalog.add_tick(newest)

    with pytest.raises(Conflict, match="another installation"):
        refuse_company(settings, catalog)


def test_one_that_is_replaced_is_not_gone_yet() -> None:
    replaced = led_by(THEIRS, stopped=True)

    assert other_installation(OURS, replaced, NOW_S, REPLACED_S) is not None
    assert other_installation(OURS, replaced, NOW_S + REPLACED_S, REPLACED_S) is None


class Waiting:
    """Who waits to be alone, and what happens meanwhile; a pause takes no time."""

    def __init__(self, then: Mapping[int, Callable[[], object]]) -> None:
        """``then``: what happens in the pause of this number."""
        self.pauses = 0
        self.now_s = 0.0
        self._then = then

    async def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.now_s += seconds
        happens = self._then.get(self.pauses, lambda: None)()
        if isinstance(happens, Awaitable):
            await happens

    async def until_alone(
        self, owner: str, catalog: MemoryCatalog, live: LiveState, wall_s: Callable[[], float]
    ) -> None:
        async with asyncio.timeout(30):
            await until_alone(
                owner, catalog, live, Journal(catalog), wall_s,
                clock_s=lambda: self.now_s, pause=self.pause,
            )  # fmt: skip


async def test_the_second_one_tells_once_and_leads_when_the_first_is_gone(live_url: str) -> None:
    catalog, wall = led_by(THEIRS), [NOW_S]
    live = LiveState(live_url)
    await live.give_up(await live.owner())

    def is_gone() -> None:
        assert [event.kind for event in catalog.events(1)] == ["other_installation"]
        wall[0] += SILENT_S

    waiting = Waiting({3: is_gone})
    await waiting.until_alone(OURS, catalog, live, lambda: wall[0])
    assert waiting.pauses == 3
    assert [event.kind for event in catalog.events(9)].count("other_installation") == 1
    await live.give_up(OURS)
    await live.close()


@pytest.mark.parametrize(
    ("owner", "heard_s"),
    [
        pytest.param(THEIRS, 3_600.0, id="an hour ahead, it counted as heard for an hour more"),
        pytest.param(ELSEWHERE, -600.0, id="behind, it was gone at the first look"),
    ],
)
async def test_who_has_a_wrong_clock_is_gone_once_it_has_written_nothing_for_as_long_as_others(
    tmp_path: Path, owner: str, heard_s: float
) -> None:
    catalog, live = led_by(owner, heard_s=heard_s), LiveState(f"unix://{tmp_path}/none")
    waiting = Waiting({})
    await waiting.until_alone(OURS, catalog, live, lambda: NOW_S)
    assert SILENT_S < waiting.now_s <= SILENT_S + AGAIN_S
    await live.close()


def test_up_watches_another_one_whose_clock_is_ahead(tmp_path: Path) -> None:
    """An hour ahead, it was in the way for an hour after it was gone."""
    settings = load_settings(state_dir=tmp_path)
    ensure_secret(settings.secret_path)
    ahead = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    catalog = led_by(THEIRS)
    catalog.add_tick(TickRecord(at=ahead, plan_version=1, body={"epoch": 1}))
    pauses: list[float] = []

    refuse_company(settings, catalog, pauses.append)
    assert sum(pauses) == SILENT_S


def test_a_clock_of_another_host_that_may_be_behind_proves_nobody_gone() -> None:
    behind = led_by(ELSEWHERE, heard_s=-600.0)

    said = other_installation(OURS, behind, NOW_S, behind_s=BEHIND_S)
    assert said is not None
    assert "was heard 600 s ago by its clock, which may be behind" in said
    assert other_installation(OURS, behind, NOW_S) is None
    assert other_installation(OURS, behind, NOW_S + BEHIND_S, behind_s=BEHIND_S) is None
    here = led_by(THEIRS, heard_s=-600.0)
    assert other_installation(OURS, here, NOW_S, behind_s=BEHIND_S) is None
    stopped = led_by(ELSEWHERE, heard_s=-600.0, stopped=True)
    assert other_installation(OURS, stopped, NOW_S, behind_s=BEHIND_S) is None


def test_who_planned_by_what_was_restored_here_does_not_plan_by_the_copy() -> None:
    """`modelless up` refused to start, or waited, where the copy was made a moment ago."""
    restored = led_by(ELSEWHERE)
    restored.add_event(Event(at=at(0), kind="restored", subject="catalog", message=""))

    assert other_installation(OURS, restored, NOW_S, REPLACED_S, BEHIND_S) is None
    restored.add_event(Event(at=at(1), kind="controller_started", subject="epoch 2", message=""))
    assert other_installation(OURS, restored, NOW_S) is not None


@pytest.mark.parametrize("writes", [True, False], ids=["it writes", "it is gone"])
def test_up_watches_another_one_whose_clock_may_be_behind(tmp_path: Path, writes: bool) -> None:
    settings = load_settings(state_dir=tmp_path, database_url="postgresql://nobody/asks")
    ensure_secret(settings.secret_path)
    behind = datetime.now(UTC) - timedelta(minutes=10)
    catalog = led_by(ELSEWHERE)

    def pause(seconds: float) -> None:
        if writes:
            written = (behind + timedelta(seconds=seconds)).isoformat()
            catalog.add_tick(TickRecord(at=written, plan_version=1, body={"epoch": 1}))

    catalog.add_tick(TickRecord(at=behind.isoformat(), plan_version=1, body={"epoch": 1}))
    if writes:
        with pytest.raises(Conflict, match=r"was heard 60\d s ago by its clock"):
            refuse_company(settings, catalog, pause)
        assert catalog.leader() == ELSEWHERE
    else:
        refuse_company(settings, catalog, pause)
        # The control loop need not watch it once more.
        assert other_installation(OURS, catalog, NOW_S) is None
        assert catalog.leader().endswith(" up")


def test_the_file_of_a_catalog_is_used_by_one_machine_with_one_clock() -> None:
    assert may_be_behind_s("sqlite:////tmp/catalog.db") == 0.0
    assert may_be_behind_s("postgresql+psycopg://somewhere/catalog") == BEHIND_S


def test_another_one_that_writes_on_is_there_whatever_its_clock_says() -> None:
    catalog, pauses = led_by(THEIRS, heard_s=3_600.0), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            catalog.add_tick(TickRecord(at=at(3_660.0), plan_version=1, body={"epoch": 1}))

    assert writes_on(catalog, pause)
    assert len(pauses) == 3
    assert not writes_on(catalog, pauses.append)
    assert sum(pauses[3:]) == SILENT_S


async def test_one_live_state_is_for_one_installation(live_url: str, tmp_path: Path) -> None:
    """Each has a catalog of its own: neither would know of the other, but for its workers."""
    live, catalog = LiveState(live_url), MemoryCatalog()
    await live.give_up(await live.owner())
    assert await claimed_by_another(THEIRS, live) is None

    async def is_told() -> None:
        (event,) = catalog.events(9)
        assert (event.kind, event.subject) == ("other_installation", "live state")
        assert "uses the same live state" in event.message
        assert "MODELLESS_REDIS_URL" in event.message
        settings = load_settings(state_dir=tmp_path, redis_url=live_url)
        ensure_secret(settings.secret_path)
        with pytest.raises(Conflict, match="uses the same live state"):
            await asyncio.to_thread(refuse_company, settings, catalog)
        await live.give_up(THEIRS)

    waiting = Waiting({3: is_told})
    await waiting.until_alone(OURS, catalog, live, lambda: NOW_S)
    assert waiting.pauses == 3
    assert await claimed_by_another(THEIRS, live) is not None
    await live.give_up(OURS)
    await live.close()


async def test_a_live_state_that_does_not_answer_stops_nobody(tmp_path: Path) -> None:
    live, catalog = LiveState(f"unix://{tmp_path}/none"), MemoryCatalog()
    async with asyncio.timeout(30):
        await until_alone(OURS, catalog, live, Journal(catalog), lambda: NOW_S)
    settings = load_settings(state_dir=tmp_path, redis_url=f"unix://{tmp_path}/none")
    ensure_secret(settings.secret_path)
    await asyncio.to_thread(refuse_company, settings, catalog)
    await live.close()


def of_cluster(began: str, *, secret: bytes = b"a" * 32, replica: str = "controller#1") -> str:
    return owner_of(secret, replica, f"session_2026-11-30_{began}_35" if began else "")


def test_of_two_clusters_of_one_installation_the_newer_one_leads() -> None:
    older, newer = of_cluster("10-00-00_000001"), of_cluster("12-00-00_000001")
    assert led_by_newer_cluster(older, newer)
    assert not led_by_newer_cluster(newer, older)
    assert not led_by_newer_cluster(older, of_cluster("10-00-00_000001", replica="controller#2"))
    assert not led_by_newer_cluster(older, of_cluster("12-00-00_000001", secret=b"b" * 32))
    assert led_by_another_cluster(newer, older)
    assert led_by_another_cluster(older, newer)
    assert not led_by_another_cluster(older, older)
    assert not led_by_another_cluster(older, of_cluster("12-00-00_000001", secret=b"b" * 32))
    day_long = f"{of_cluster('')}@session_2026-11-30_12-00-00_000001_35"
    assert led_by_newer_cluster(older, day_long)
    assert leads(day_long, "controller#1")
    for unknown in ("", "somebody", of_cluster("")):  # as earlier states of the code name it
        assert not led_by_newer_cluster(older, unknown)
        assert not led_by_newer_cluster(unknown, newer)
        assert not led_by_another_cluster(older, unknown)


async def test_the_control_loop_of_the_older_cluster_waits_for_the_end_of_the_newer_one(
    live_url: str,
) -> None:
    live, catalog = LiveState(live_url), MemoryCatalog()
    older, newer = of_cluster("10-00-00_000001"), of_cluster("12-00-00_000001")
    await live.give_up(await live.owner())
    for owner in (older, newer):  # the newer one takes over from one that leads
        await until_alone(owner, catalog, live, Journal(catalog), lambda: NOW_S)
    assert await live.owner() == newer

    async def ends() -> None:
        assert await live.owner() == newer
        assert catalog.events(9) == ()
        await live.give_up(newer)

    waiting = Waiting({3: ends})
    await waiting.until_alone(older, catalog, live, lambda: NOW_S)
    assert waiting.pauses == 3
    assert await live.owner() == older
    await live.give_up(older)
    await live.close()


@pytest.mark.parametrize("cluster", ["", "session_2026-11-30_10-00-00_1_1"])
def test_a_replica_is_known_as_who_leads_on_whichever_cluster(cluster: str) -> None:
    """By that `modelless upgrade` sees that a new control loop has taken over."""
    leader = owner_of(b"a" * 32, "modelless-controller#controller#x1", cluster)
    assert leads(leader, "modelless-controller#controller#x1")
    assert leader.endswith(" modelless-controller#controller#x1")  # what builds before look for
    assert not leads(leader, "modelless-controller#controller#x2")
    assert not leads(leader, "x1")
    assert not leads("", "")
