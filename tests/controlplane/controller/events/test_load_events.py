"""Loads and evictions for queries, as events."""

from controlplane.controller.events.load_events import TELL_EVERY_S, LoadEvents
from variants.types import TaskName, VariantName
from workers.types import Occurrence, OccurrenceKind

LOADED, EVICTED = OccurrenceKind.LOADED_ON_DEMAND, OccurrenceKind.EVICTED


def occurrence(seq: int, kind: OccurrenceKind = LOADED, variant: str = "v") -> Occurrence:
    return Occurrence(
        seq=seq, kind=kind, task=TaskName("t"), variant=VariantName(variant), why=f"why {seq}"
    )


def test_the_first_is_told_at_once_and_a_storm_once_a_minute() -> None:
    told = LoadEvents()
    told.take("w1", [occurrence(1)], (), 0.0)
    assert list(told.due(["w1"], 0.0)) == [("loaded_on_demand", "t/v on w1", "why 1")]
    for seq in range(2, 41):
        told.take("w1", [occurrence(seq)], (), float(seq))
        assert list(told.due(["w1"], float(seq))) == []
    assert list(told.due(["w1"], TELL_EVERY_S)) == [
        ("loaded_on_demand", "t/v on w1", "39 times within 58 s, last why 40")
    ]
    assert list(told.due(["w1"], 10 * TELL_EVERY_S)) == []


def test_kinds_workers_and_variants_are_told_apart() -> None:
    told = LoadEvents()
    told.take("w1", [occurrence(1, EVICTED), occurrence(2), occurrence(3, variant="u")], (), 0.0)
    told.take("w2", [occurrence(1)], (), 0.0)
    assert [(kind, subject) for kind, subject, _ in told.due(["w1", "w2"], 0.0)] == [
        ("evicted", "t/v on w1"),
        ("loaded_on_demand", "t/v on w1"),
        ("loaded_on_demand", "t/u on w1"),
        ("loaded_on_demand", "t/v on w2"),
    ]


def test_a_worker_may_forget_what_is_stored_and_nothing_else() -> None:
    told = LoadEvents()
    told.take("w1", [occurrence(1), occurrence(2, EVICTED)], (), 0.0)
    list(told.due(["w1"], 0.0))
    assert told.told("w1") == ()
    told.stored()
    assert (told.told("w1"), told.after("w1")) == ((1, 2), 2)
    told.take("w1", [occurrence(3)], (1, 2), 1.0)
    list(told.due(["w1"], 1.0))
    told.stored()
    assert (told.told("w1"), told.after("w1")) == ((), 3)


def test_what_is_known_is_not_counted_again() -> None:
    told = LoadEvents()
    told.take("w1", [occurrence(1)], (), 0.0)
    told.take("w1", [occurrence(1)], (), 1.0)
    assert list(told.due(["w1"], 1.0)) == [("loaded_on_demand", "t/v on w1", "why 1")]


def test_what_is_left_of_a_worker_that_is_gone_is_told_at_once() -> None:
    told = LoadEvents()
    told.take("w1", [occurrence(1)], (), 0.0)
    list(told.due(["w1"], 0.0))
    told.take("w1", [occurrence(2), occurrence(3)], (), 1.0)
    assert list(told.due([], 2.0)) == [
        ("loaded_on_demand", "t/v on w1", "2 times within 1 s, last why 3")
    ]
