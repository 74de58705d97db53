"""What happened between two looks at the workers."""

from dataclasses import replace

from controlplane.controller.events.status_events import Departure, Target, status_events
from tests.controlplane.builders import worker
from variants.types import ReplicaState
from workers.types import WorkerStatus


def look(*statuses: WorkerStatus) -> dict[str, WorkerStatus]:
    return {status.worker: status for status in statuses}


def quarantined(status: WorkerStatus, why: str) -> WorkerStatus:
    first, *others = status.replicas
    first = replace(first, state=ReplicaState.QUARANTINED, message=why)
    return replace(status, replicas=(first, *others))


def damaged(status: WorkerStatus, why: str) -> WorkerStatus:
    first, *others = status.replicas
    first = replace(first, state=ReplicaState.DAMAGED, message=why)
    return replace(status, replicas=(first, *others))


def test_nothing_happened() -> None:
    assert list(status_events(look(worker("w1", "a")), look(worker("w1", "a", "b")))) == []


def test_a_worker_joins() -> None:
    assert list(status_events({}, look(worker("w1")))) == [
        ("worker_joined", "w1", "it takes up to 4,000 MiB of variants")
    ]


def test_a_worker_is_lost() -> None:
    assert list(status_events(look(worker("w1")), {})) == [
        ("worker_lost", "w1", "worker w1 is gone: its connection broke")
    ]


def test_a_worker_drains_and_leaves() -> None:
    serving, draining = worker("w1"), replace(worker("w1"), draining=True)
    assert list(status_events(look(serving), look(draining))) == [
        ("worker_draining", "w1", "worker w1 finishes its work and leaves")
    ]
    assert list(status_events(look(draining), look(draining))) == []
    assert list(status_events(look(draining), {})) == [
        ("worker_left", "w1", "worker w1 is gone: it had drained")
    ]


def test_a_worker_whose_node_goes_has_left_though_it_did_not_say_so() -> None:
    """It counts as draining since its node does, and its replacement is there already."""
    before = look(replace(worker("w1"), draining=True), worker("w2"))
    gone = {"w1": Departure(status=worker("w1"), broke="")}
    one = {"cpu-4": Target(count=1, why="1 instead of 0: the inventory")}
    told = [("worker_left", "w1", "worker w1 is gone: its node goes")]
    assert list(status_events(before, look(worker("w2")), gone, one)) == told


def test_a_worker_that_was_to_go_has_left_however_suddenly() -> None:
    """Ray Serve may end it before its drain is noticed."""
    before, kept = look(worker("w1"), worker("w2")), look(worker("w2"))
    one = {"cpu-4": Target(count=1, why="1 instead of 2: the inventory")}
    told = ("worker_left", "w1", "worker w1 is gone: scaled down to 1 instead of 2: the inventory")
    broken = {"w1": Departure(status=worker("w1"), broke="the worker closed the connection")}
    assert list(status_events(before, kept, {}, one)) == [told]
    assert list(status_events(before, kept, broken, one)) == [told]
    # Another controller may have said so.
    unknown = {"cpu-4": Target(count=1)}
    assert list(status_events(before, kept, {}, unknown)) == [
        ("worker_left", "w1", "worker w1 is gone: scaled down to 1")
    ]


def test_only_as_many_have_left_as_were_to_go_those_first_that_were_seen_to() -> None:
    before = look(worker("w1"), worker("w2"), worker("w3"))
    departures = {
        "w1": Departure(status=worker("w1"), broke="it was killed"),
        "w2": Departure(status=worker("w2")),
        "w3": Departure(status=replace(worker("w3"), draining=True), broke="it closed"),
    }
    two = {"cpu-4": Target(count=1, why="1 instead of 3: the inventory")}
    assert [(kind, subject) for kind, subject, _ in status_events(before, {}, departures, two)] == [
        ("worker_left", "w3"),
        ("worker_left", "w2"),
        ("worker_lost", "w1"),
    ]


def test_what_it_said_last_counts_not_what_was_last_looked_at() -> None:
    departed = {"w1": Departure(status=replace(worker("w1"), draining=True), broke="it closed")}
    assert list(status_events(look(worker("w1")), {}, departed)) == [
        ("worker_left", "w1", "worker w1 is gone: it had drained")
    ]


def test_a_worker_that_is_gone_while_as_many_are_wanted_is_lost() -> None:
    before, one = look(worker("w1")), {"cpu-4": Target(count=1), "gpu": Target(count=0)}
    broken = {"w1": Departure(status=worker("w1"), broke="the worker closed the connection")}
    ended = {"w1": Departure(status=worker("w1"))}
    assert [message for _, _, message in status_events(before, {}, broken, one)] == [
        "worker w1 is gone: the worker closed the connection"
    ]
    assert list(status_events(before, {}, ended, one)) == [
        (
            "worker_lost",
            "w1",
            "worker w1 is gone: Ray Serve has ended it, though no fewer workers were asked for",
        )
    ]


def test_quarantine_is_told_once() -> None:
    before, after = worker("w1", "a"), quarantined(worker("w1", "a"), "it crashed twice")
    told = ("quarantined", "digits/a on w1", "it crashed twice")
    assert list(status_events(look(before), look(after))) == [told]
    assert list(status_events(look(after), look(after))) == []


def test_a_worker_that_joins_with_a_quarantine_tells_it() -> None:
    after = quarantined(worker("w1", "a"), "it crashed twice")
    assert [kind for kind, _, _ in status_events({}, look(after))] == [
        "worker_joined",
        "quarantined",
    ]


def test_a_damaged_artifact_is_told_once_for_all_workers() -> None:
    why = "its artifact 3fa4b2c19d0e is damaged"
    one, two = damaged(worker("w1", "a"), why), damaged(worker("w2", "a"), why)
    told = ("artifact_invalid", "digits/a", f"it is not loaded: {why}")
    assert list(status_events(look(worker("w1", "a"), worker("w2", "a")), look(one, two))) == [told]
    assert list(status_events(look(one, worker("w2", "a")), look(one, two))) == []
    assert list(status_events(look(one, two), look(one, two))) == []


def test_an_artifact_that_is_damaged_again_is_told_again() -> None:
    sound, broken = worker("w1", "a"), damaged(worker("w1", "a"), "its artifact is missing")
    assert list(status_events(look(broken), look(sound))) == []
    assert [kind for kind, _, _ in status_events(look(sound), look(broken))] == ["artifact_invalid"]


def test_those_who_left_come_before_those_who_joined() -> None:
    before, after = look(worker("w2"), worker("w1")), look(worker("w4"), worker("w3"))
    assert [(kind, subject) for kind, subject, _ in status_events(before, after)] == [
        ("worker_lost", "w1"),
        ("worker_lost", "w2"),
        ("worker_joined", "w3"),
        ("worker_joined", "w4"),
    ]


def test_a_warning_is_told_once() -> None:
    before, warned = worker("w1"), replace(worker("w1"), warnings=("the disk is full",))
    told = ("worker_warning", "w1", "the disk is full")
    assert list(status_events(look(before), look(warned))) == [told]
    assert list(status_events(look(warned), look(warned))) == []
    assert list(status_events({}, look(warned)))[-1] == told
