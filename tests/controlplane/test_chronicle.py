"""What happened between two looks at the workers."""

from dataclasses import replace

from controlplane.chronicle import happened
from tests.controlplane.builders import worker
from variants.types import ReplicaState
from workers.types import WorkerStatus


def look(*statuses: WorkerStatus) -> dict[str, WorkerStatus]:
    return {status.worker: status for status in statuses}


def quarantined(status: WorkerStatus, why: str) -> WorkerStatus:
    first, *others = status.replicas
    first = replace(first, state=ReplicaState.QUARANTINED, message=why)
    return replace(status, replicas=(first, *others))


def test_nothing_happened() -> None:
    assert list(happened(look(worker("w1", "a")), look(worker("w1", "a", "b")))) == []


def test_a_worker_joins() -> None:
    assert list(happened({}, look(worker("w1")))) == [
        ("worker_joined", "w1", "worker w1 takes up to 4000 MiB")
    ]


def test_a_worker_is_lost() -> None:
    assert list(happened(look(worker("w1")), {})) == [
        ("worker_lost", "w1", "worker w1 is gone: its connection broke")
    ]


def test_a_worker_drains_and_leaves() -> None:
    serving, draining = worker("w1"), replace(worker("w1"), draining=True)
    assert list(happened(look(serving), look(draining))) == [
        ("worker_draining", "w1", "worker w1 finishes its work and leaves")
    ]
    assert list(happened(look(draining), look(draining))) == []
    assert list(happened(look(draining), {})) == [
        ("worker_left", "w1", "worker w1 is gone: it had drained")
    ]


def test_quarantine_is_told_once() -> None:
    before, after = worker("w1", "a"), quarantined(worker("w1", "a"), "it crashed twice")
    told = ("quarantined", "digits/a on w1", "it crashed twice")
    assert list(happened(look(before), look(after))) == [told]
    assert list(happened(look(after), look(after))) == []


def test_a_worker_that_joins_with_a_quarantine_tells_it() -> None:
    after = quarantined(worker("w1", "a"), "it crashed twice")
    assert [kind for kind, _, _ in happened({}, look(after))] == ["worker_joined", "quarantined"]


def test_those_who_left_come_before_those_who_joined() -> None:
    before, after = look(worker("w2"), worker("w1")), look(worker("w4"), worker("w3"))
    assert [(kind, subject) for kind, subject, _ in happened(before, after)] == [
        ("worker_lost", "w1"),
        ("worker_lost", "w2"),
        ("worker_joined", "w3"),
        ("worker_joined", "w4"),
    ]
