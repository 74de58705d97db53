"""What happened, in every catalog."""

import json
from contextlib import suppress

import pytest

from tests.contracts.catalog.known import DIGITS, MLP
from tests.contracts.places import Place
from tests.variants.catalog_builders import event, registration, tick
from variants.catalog import protocol, sql
from variants.catalog.memory import records
from variants.catalog.protocol import TICKS_KEPT, Catalog
from variants.errors import InvalidInput, NotFound
from variants.types import Event, EventFilter, ModelName, Stage


def test_ticks_come_newest_first(catalog: Catalog) -> None:
    for number in (1, 2, 3):
        catalog.add_tick(tick(number, qps=number * 10))
    assert catalog.ticks(2) == (tick(3, qps=30), tick(2, qps=20))
    assert catalog.ticks(0) == ()


def test_ticks_that_changed_something(catalog: Catalog) -> None:
    """A plan other than before, or actions; bodies of any other shape began nothing."""
    load = {"action": "load"}
    for number, actions in enumerate(([], [], [], [load], [], [load], [])):
        catalog.add_tick(tick((1, 1, 2, 2, 2, 3, 3)[number], actions=actions))
    catalog.add_tick(tick(3, qps=1))
    changed = catalog.ticks(10, changes=True)
    assert changed == (
        tick(3, actions=[load]), tick(2, actions=[load]), tick(2, actions=[]), tick(1, actions=[]),
    )  # fmt: skip
    assert catalog.ticks(2, changes=True) == changed[:2]


def test_ticks_with_other_rates_alone_changed_nothing(catalog: Catalog) -> None:
    for number, changes in ((0, []), (1, []), (2, ["w1 gets a"]), (3, []), (4, [])):
        catalog.add_tick(tick(number, actions=[], changes=changes))
    found = catalog.ticks(10, changes=True)
    assert [record.plan_version for record in found] == [2, 1, 0]


def test_only_the_newest_ticks_are_kept(somewhere: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand, of which each takes a database milliseconds: here only a few."""
    assert TICKS_KEPT == 1_000
    monkeypatch.setattr(protocol, "TICKS_KEPT", 20)
    catalog = somewhere.open()
    for number in range(23):
        catalog.add_tick(tick(number))
    kept = catalog.ticks(2_000)
    assert [record.plan_version for record in kept] == list(range(22, 2, -1))


def test_of_large_turns_fewer_are_kept(somewhere: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of tasks each takes some 100 KiB, so that a thousand would fill a disk."""
    monkeypatch.setattr(protocol, "TICK_BYTES_KEPT", 10_000)
    monkeypatch.setattr(protocol, "LEAST_KEPT", 3)
    catalog = somewhere.open()
    for number in range(12):
        catalog.add_tick(tick(number, why="x" * 2_000))
    assert [record.plan_version for record in catalog.ticks(100)] == [11, 10, 9, 8]
    catalog.add_tick(tick(12, why="x" * 9_000))
    assert [record.plan_version for record in catalog.ticks(100)] == [12, 11, 10]


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()], ids=["NaN", "set", "object"])
def test_a_tick_that_json_cannot_say_is_refused(catalog: Catalog, value: object) -> None:
    with pytest.raises(InvalidInput, match="not plain JSON"):
        catalog.add_tick(tick(1, value=value))
    assert catalog.ticks(1) == ()


def test_a_body_is_what_json_makes_of_it(catalog: Catalog) -> None:
    body = {"a": [1, 2.5, None, True], "b": {"ü": "\0"}, "tuple": (1, 2)}
    catalog.add_tick(tick(1, **body))
    assert catalog.ticks(1)[0].body == json.loads(json.dumps(body))


def test_events_are_numbered_and_come_newest_first(catalog: Catalog) -> None:
    for message in ("one", "two", "three"):
        catalog.add_event(event(message, seq=77))
    one, two, three = (event(m, seq=i) for i, m in enumerate(("one", "two", "three"), start=1))
    assert catalog.events(10) == (three, two, one)
    assert catalog.events(1) == (three,)
    assert catalog.events(10, EventFilter(after=1)) == (three, two)
    assert catalog.events(10, EventFilter(after=3)) == ()


def test_several_events_are_kept_at_once_or_not_at_all(catalog: Catalog) -> None:
    catalog.add_event()
    with pytest.raises(InvalidInput):
        catalog.add_event(event("one"), event("\0"))
    assert catalog.events(10) == ()
    catalog.add_event(event("one"))
    catalog.add_event(event("two"), event("three"))
    assert catalog.events(10) == (event("three", seq=3), event("two", seq=2), event("one", seq=1))


def test_what_is_loaded_takes_nothing_else_along(
    somewhere: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts tells of hundreds of loads; a few of these were all that was kept."""
    for kept_in in (records, sql):
        monkeypatch.setattr(kept_in, "EVENTS_KEPT", 4)
        monkeypatch.setattr(kept_in, "RARE_EVENTS_KEPT", 10)
    catalog = somewhere.open()
    at = "2026-01-01T00:00:00+00:00"

    def happens(*kinds: str) -> list[int]:
        catalog.add_event(*(Event(at=at, kind=one, subject="a", message="b") for one in kinds))
        return [one.seq for one in catalog.events(100)]

    assert happens("loaded", "worker_lost", "loaded") == [3, 2, 1]
    assert happens("loaded", "loaded", "loaded") == [6, 5, 4, 3, 2]
    assert happens("loaded") == [7, 6, 5, 4, 2]
    assert happens("planned", "worker_lost", "unloaded", "scaled", "scaled") == [12, 11, 10, 9]
    assert happens("worker_left") == [13, 12, 11, 10, 9]


WHAT_HAPPENED = (
    ("loaded", "digits/mlp-v1 on cpu-4-a", "2026-01-01T00:00:00.500+00:00"),
    ("worker_lost", "cpu-4-a", "2026-01-01T00:00:01+00:00"),
    ("worker_lost", "cpu-4-aa", "2026-01-01T00:00:02.250+00:00"),
    ("slo_changed", "digits", "2026-01-01T00:00:03+00:00"),
    ("loaded", "digits_/mlp-v1 on b", "2026-01-01T00:00:04+00:00"),
    ("loaded", "Digits/mlp-v1 on CPU-4-a", "2026-01-01T00:00:05+00:00"),
    ("started", "a", "2026-01-01T00:00:06+00:00"),
)


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        (EventFilter(), [7, 6, 5, 4, 3, 2, 1]),
        (EventFilter(kinds=frozenset({"loaded"})), [6, 5, 1]),
        (EventFilter(kinds=frozenset({"loaded", "slo_changed"}), after=1), [6, 5, 4]),
        (EventFilter(since="2026-01-01T00:00:02"), [7, 6, 5, 4, 3]),
        (EventFilter(tasks=frozenset({"digits"})), [4, 1]),
        (EventFilter(tasks=frozenset({"digit_"})), []),
        (EventFilter(worker="cpu-4-a"), [2, 1]),
        (EventFilter(worker="cpu-4-a", tasks=frozenset({"digits"})), [1]),
        (EventFilter(worker="%"), []),
        (EventFilter(worker="a" * 100), []),
    ],
)
def test_events_are_those_that_are_asked_for(
    catalog: Catalog, asked: EventFilter, numbers: list[int]
) -> None:
    for what, subject, at in WHAT_HAPPENED:
        catalog.add_event(Event(at=at, kind=what, subject=subject, message="so"))
    assert [one.seq for one in catalog.events(10, asked)] == numbers
    assert [one.seq for one in catalog.events(1, asked)] == numbers[:1]


def test_an_event_with_text_that_cannot_be_stored_is_refused(catalog: Catalog) -> None:
    for text in ("\0", "\ud800"):
        with pytest.raises(InvalidInput):
            catalog.add_event(event(text))
    assert catalog.events(10) == ()


def test_what_no_catalog_can_hold_is_not_there(catalog: Catalog) -> None:
    """A database that cannot even look for it is not away: nobody is to try it again."""
    catalog.register(registration())
    with pytest.raises((NotFound, InvalidInput)):
        catalog.set_stage([DIGITS], ModelName("a\0b"), 1, Stage.LIVE)
    with pytest.raises((NotFound, InvalidInput)):
        catalog.set_stage([DIGITS], MLP, 2**63, Stage.LIVE)
    with suppress(InvalidInput):
        assert catalog.events(10, EventFilter(after=2**63)) == ()
