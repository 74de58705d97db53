"""What is in quarantine, and lifting it, over the control API."""

from dataclasses import replace
from time import time

import httpx
import pytest

from controlplane.api.quarantine import AHEAD_S
from tests.controlplane.builders import DictLive, worker
from variants.catalog.memory import MemoryCatalog
from variants.types import QuarantineLift, ReplicaState, TaskName, VariantName
from workers.types import WorkerStatus

MLP = "mlp-v1-onnx-int8"
AT_S = 1_800_000_000.0


def keeping_out(name: str, at_s: float) -> WorkerStatus:
    status = worker(name, "linear-v1-onnx-fp32", MLP)
    sound, failing = status.replicas
    failing = replace(
        failing, state=ReplicaState.QUARANTINED, message="it crashed", quarantined_s=at_s
    )
    return replace(status, replicas=(sound, failing))


async def test_what_is_in_quarantine_is_listed_with_where_when_and_why(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    assert (await api.get("/v1/quarantine")).json() == {"quarantine": []}
    live.statuses = [keeping_out("b", AT_S + 1), worker("c", MLP), keeping_out("a", AT_S)]

    reply = await api.get("/v1/quarantine")

    row = {"task": "digits", "variant": MLP, "worker": "a", "device_kind": "cpu-4",
           "since": "2027-01-15T08:00:00+00:00", "why": "it crashed"}  # fmt: skip
    other = {**row, "worker": "b", "since": "2027-01-15T08:00:01+00:00"}
    assert reply.json() == {"quarantine": [row, other]}


async def test_a_quarantine_is_lifted_at_all_workers_and_told(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    ahead_s = time() + 30.0  # a worker's clock that is ahead of the gateway's
    live.statuses = [keeping_out("a", ahead_s - 60.0), keeping_out("b", ahead_s)]

    reply = await api.delete(f"/v1/quarantine/digits/{MLP}")

    assert (reply.status_code, reply.json()["workers"]) == (200, ["a", "b"])
    lifted = QuarantineLift(task=TaskName("digits"), variant=VariantName(MLP), at_s=ahead_s)
    assert catalog.quarantine_lifts() == (lifted,)
    [event] = catalog.events(9)
    assert (event.kind, event.subject, event.message) == (
        "quarantine_lifted", f"digits/{MLP}", "a, b kept it out: it crashed",
    )  # fmt: skip


async def test_a_worker_whose_clock_is_far_ahead_does_not_lift_what_is_to_come(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    live.statuses = [keeping_out("a", 4e9)]

    await api.delete(f"/v1/quarantine/digits/{MLP}")

    [lifted] = catalog.quarantine_lifts()
    assert lifted.at_s <= time() + AHEAD_S


@pytest.mark.parametrize(
    ("path", "status", "code", "error"),
    [
        (f"none/{MLP}", 404, "TASK_NOT_FOUND", "'none'"),
        ("digits/none", 404, "NOT_FOUND", "'none'"),
        ("digits/linear-v1-onnx-fp32", 409, "CONFLICT", "is not in quarantine at any worker"),
    ],
)
async def test_what_cannot_be_lifted_is_a_typed_error(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog,
    path: str, status: int, code: str, error: str,
) -> None:  # fmt: skip
    live.statuses = [keeping_out("a", AT_S)]
    reply = await api.delete(f"/v1/quarantine/{path}")
    assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert error in reply.json()["error"]
    assert (catalog.quarantine_lifts(), catalog.events(9)) == ((), ())


async def test_without_live_state_nothing_is_lifted(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    live.gone = True
    reply = await api.delete(f"/v1/quarantine/digits/{MLP}")
    assert (reply.status_code, reply.json()["code"]) == (503, "STATE_UNAVAILABLE")
    assert catalog.quarantine_lifts() == ()
