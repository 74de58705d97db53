"""A worker that Ray Serve ends unasked, and one that it ends because everything ends."""

from dataclasses import replace
from typing import cast

from controlplane.controller.events.journal import Journal
from controlplane.controller.events.recorder import StatusRecorder
from controlplane.controller.events.status_events import ANEW, ENDED, Departure, Target
from controlplane.controller.met_workers.worker_pool import WorkerPool
from tests.controlplane.builders import worker
from variants.catalog.memory import MemoryCatalog
from workers.types import WorkerStatus

W1 = worker("w1")


class Pool:
    """Workers that the cluster has just stopped to list."""

    def __init__(self, *gone: str) -> None:
        self.gone = gone

    def departures(self) -> dict[str, Departure]:
        left, self.gone = self.gone, ()
        return {id_: Departure(status=worker(id_)) for id_ in left}


async def seen(
    looks: int,
    *,
    stopped: bool = False,
    back: bool = False,
    status: WorkerStatus = W1,
    later: WorkerStatus = W1,
) -> list[tuple[str, str, str]]:
    """Events after a worker was there, and then not in so many looks."""
    catalog = MemoryCatalog()
    journal = Journal(catalog)
    recorder = StatusRecorder(catalog, journal, lambda: 0.0)
    await recorder.lead(catalog.acquire_leadership("a"), None)
    there: dict[str, WorkerStatus] = {"w1": status}
    recorder.workers(there, cast(WorkerPool, Pool()), {})
    pool = cast(WorkerPool, Pool("w1"))
    for _ in range(looks):
        recorder.workers({}, pool, {})
    if back:
        recorder.workers({"w1": later}, pool, {})
    if stopped:
        await recorder.stop(pool)
    await journal.store_events()
    return [(event.kind, event.subject, event.message) for event in reversed(catalog.events(10))]


async def test_one_that_was_ended_unasked_is_told_with_the_next_look() -> None:
    lost = ("worker_lost", "w1", f"worker w1 is gone: {ENDED}")

    assert lost not in await seen(1)
    assert (await seen(2)).count(lost) == 1
    assert (await seen(3)).count(lost) == 1


async def test_the_end_of_everything_loses_no_worker() -> None:
    kinds = [kind for kind, _, _ in await seen(1, stopped=True)]

    assert kinds == ["controller_started", "worker_joined", "controller_stopped"]


async def test_one_that_is_back_with_the_next_look_was_never_lost() -> None:
    kinds = [kind for kind, _, _ in await seen(1, back=True)]

    assert kinds == ["controller_started", "worker_joined"]


async def test_what_one_that_is_back_said_before_is_no_news() -> None:
    full = replace(W1, warnings=("its disk is full",))
    both = replace(W1, warnings=("its disk is full", "its clock is wrong"))
    events = await seen(1, back=True, status=full, later=both)

    warned = [message for kind, _, message in events if kind == "worker_warning"]
    assert warned == ["its disk is full", "its clock is wrong"]


async def test_one_that_is_replaced_as_its_kind_has_other_nodes_has_left() -> None:
    catalog = MemoryCatalog()
    journal = Journal(catalog)
    recorder = StatusRecorder(catalog, journal, lambda: 0.0)
    await recorder.lead(catalog.acquire_leadership("a"), None)
    nobody = cast(WorkerPool, Pool())
    two, three = (
        {"cpu-4": Target(count=2, nodes=f"ray.io/node-id={ids}")} for ids in ("a|b", "a|b|c")
    )
    recorder.workers({"w1": W1, "w2": worker("w2")}, nobody, two)
    recorder.workers({"w1": W1, "w2": worker("w2")}, nobody, three)
    recorder.workers({"w2": worker("w2"), "w3": worker("w3")}, cast(WorkerPool, Pool("w1")), three)
    for pool in (cast(WorkerPool, Pool("w3")), nobody):  # one that came later is not replaced
        recorder.workers({"w2": worker("w2")}, pool, three)
    await journal.store_events()

    found = reversed(catalog.events(10))
    told = {event.subject: (event.kind, event.message) for event in found}
    assert told["w1"] == ("worker_left", f"worker w1 is gone: {ANEW}")
    assert told["w3"] == ("worker_lost", f"worker w3 is gone: {ENDED}")
