"""Many writers at once, in every catalog."""

from dataclasses import replace

from tests.contracts.catalog.known import DIGITS, change_slo, in_threads
from tests.contracts.places import Place
from tests.variants.catalog_builders import event, plan, registration
from variants.errors import StaleEpoch
from variants.types import CatalogSnapshot, Slo


def test_of_two_equal_registrations_one_wins(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(4)]
    outcomes = in_threads(4, lambda i: handles[i].register(registration()))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "Conflict",
        "Conflict",
        "Conflict",
        "NoneType",
    ]
    assert handles[0].revision() == 1


def test_no_registration_is_lost(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]

    def register_five(i: int) -> None:
        for number in range(1, 6):
            handles[i % 2].register(registration(f"model-{i}", number))

    assert in_threads(4, register_five) == [None] * 4
    assert handles[0].revision() == 20
    assert len(handles[1].snapshot().versions) == 20


def test_no_change_of_a_default_slo_is_lost(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]
    handles[0].register(registration())
    before = handles[0].snapshot().tasks[0].slo.latency_ms

    def one_more(slo: Slo) -> Slo:
        return replace(slo, latency_ms=slo.latency_ms + 1)

    in_threads(8, lambda i: change_slo(handles[i % 2], DIGITS, one_more))
    assert handles[1].snapshot().tasks[0].slo.latency_ms == before + 8


def test_a_snapshot_never_shows_half_a_registration(somewhere: Place) -> None:
    writer, reader = somewhere.open(), somewhere.open()

    def write_or_read(i: int) -> list[CatalogSnapshot]:
        if i == 0:
            for number in range(1, 21):
                writer.register(registration(number=number))
            return []
        return [reader.snapshot() for _ in range(20)]

    written, *read = in_threads(3, write_or_read)
    assert written == []
    for snapshots in read:
        assert isinstance(snapshots, list)
        for seen in snapshots:
            sizes = [len(seen.versions), len(seen.variants), len(seen.profiles)]
            assert sizes == [seen.revision] * 3


def test_every_leader_gets_an_epoch_of_its_own(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]
    epochs = in_threads(8, lambda i: handles[i % 2].acquire_leadership(f"controller-{i}"))
    assert sorted(map(str, epochs)) == [str(i) for i in range(1, 9)]


def test_every_plan_gets_a_version_of_its_own(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]
    epoch = handles[0].acquire_leadership("controller-1")
    stored = in_threads(8, lambda i: handles[i % 2].put_plan(plan(epoch)).version)
    assert sorted(map(str, stored)) == [str(i) for i in range(1, 9)]


def test_after_a_change_of_leader_no_plan_of_the_old_one_appears(somewhere: Place) -> None:
    old, new = somewhere.open(), somewhere.open()
    first = old.acquire_leadership("controller-1")

    def plan_or_take_over(i: int) -> list[int]:
        if i == 0:
            second = new.acquire_leadership("controller-2")
            return [new.put_plan(plan(second)).version]
        stored = []
        for _ in range(30):
            try:
                stored.append(old.put_plan(plan(first)).version)
            except StaleEpoch:
                break
        return stored

    taken_over, before = in_threads(2, plan_or_take_over)
    assert isinstance(taken_over, list)
    assert isinstance(before, list)
    assert max(before, default=0) < taken_over[0]
    latest = new.latest_plan()
    assert latest is not None
    assert (latest.version, latest.epoch) == (taken_over[0], first + 1)


def test_events_of_many_writers_are_numbered_without_gaps(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]

    def add_five(i: int) -> None:
        for _ in range(5):
            handles[i % 2].add_event(event(f"from {i}"))

    assert in_threads(4, add_five) == [None] * 4
    assert [e.seq for e in handles[0].events(100)] == list(range(20, 0, -1))
