"""The nodes of a cluster with what its autoscaler is asked for; that a node goes, or a worker."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from controlplane.api.context import ApiContext, happened
from controlplane.api.path_parameters import WorkerPath, no_worker
from controlplane.timestamps import timestamp_of
from controlplane.views.schemas import Schema
from planner.sentences import NAMED
from variants.catalog.validity.rules import MOST_BY, MOST_WHY
from variants.errors import Conflict, DeadlineExceeded, NotFound
from variants.figures import some_of
from variants.types import ReplicaState
from workers.types import WorkerStatus

LONGEST_S = 86_400.0
LEAST_PREFIX = 4
"""So much of an id names a node."""
MOST_TOLD = 5
"""How many tasks a sentence about a node names at most."""
ONE_MACHINE = "nothing starts nodes for a single machine"
NOT_LOOKED = "the control loop has not looked at the nodes yet"


class NodeRow(Schema):
    """A node that is alive."""

    id: str = Field(description="Ray's id of it.")
    host: str
    address: str
    head: bool = Field(description="Whether Ray's control store runs there.")
    cores: int
    gpus: int
    kinds: list[str] = Field(description="Device kinds whose workers may run there.")
    draining: bool = Field(description="Whether it is about to go.")
    drains_until: str | None = Field(
        description="By when it goes; null where it stays, or goes when it is done."
    )


class Nodes(Schema):
    autoscaler: str = Field(description="What may start nodes, in a sentence.")
    missing: dict[str, int] = Field(
        description="Workers, by device kind, for which the autoscaler is asked for nodes."
    )
    remarks: list[str] = Field(description="What cannot be asked for, and why.")
    nodes: list[NodeRow]


class Notice(Schema):
    """That a node goes."""

    model_config = ConfigDict(extra="forbid")

    why: str = Field("an operator asked for it", max_length=200)
    deadline_s: float | None = Field(
        None, ge=0, le=LONGEST_S, description="In so many seconds; null: when it is done."
    )


class DrainOrder(Schema):
    """That a worker shall go."""

    model_config = ConfigDict(extra="forbid")

    allow_gap: bool = Field(
        False, description="Also where queries of some task could not be answered for a while."
    )
    why: str = Field("", max_length=MOST_WHY, description="For people.")
    by: str = Field("", max_length=MOST_BY, description="Who says it; nobody checks that.")


class Drained(Schema):
    """A worker that goes."""

    worker: str
    device_kind: str
    done: bool = Field(description="Whether all queries that it had are answered.")
    others: int = Field(description="Workers that take queries meanwhile.")
    sentence: str


def node_routes(context: ApiContext) -> APIRouter:
    """``/v1/nodes``, ``/v1/nodes/{node}/drain`` and ``/v1/workers/{worker}/drain``."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/nodes", summary="The nodes of the cluster, and what its autoscaler is asked for")
    async def nodes() -> Nodes:
        return await _seen(context)

    @routes.post(
        "/nodes/{node}/drain",
        name="drain_node",
        summary="Tell that a node goes",
        description="Nothing is started on it any more; what its workers hold is loaded elsewhere, "
        "and they finish what they have. Ray then ends the node. It is told to Ray by the control "
        "loop, within seconds, and cannot be taken back. The hook of a cloud that gives notice of "
        "a spot machine calls this.",
    )
    async def drain(
        node: Annotated[
            str, Path(description="Its id, the beginning of it, its host name or its address.")
        ],
        notice: Notice,
    ) -> NodeRow:
        row = _named(node, (await _seen(context)).nodes)
        if row.head:
            raise Conflict(f"node {row.host} is the head: without it nothing is started again")
        until_s = 0.0 if notice.deadline_s is None else time.time() + notice.deadline_s
        told = {"node": row.id, "why": notice.why, "until_s": until_s}
        await context.live.put_notice(told)
        return row.model_copy(update={"draining": True, "drains_until": _when(until_s)})

    @routes.post(
        "/workers/{worker}/drain",
        name="drain_worker",
        summary="Have a worker leave, and another take its place",
        description="It takes no more queries, answers those that it has, and ends; Ray Serve "
        "starts another one with the same settings. `CONFLICT` where it leaves already, and, "
        "without `allow_gap`, where it is the only worker that takes queries or holds a variant "
        "of some task. `modelless workers scale` has fewer workers run.",
    )
    async def leave(worker: WorkerPath, order: DrainOrder) -> Drained:
        return await _leaves(context, worker, order)

    return routes


async def _seen(context: ApiContext) -> Nodes:
    seen: Mapping[str, Any] | None = None
    if context.settings.ray_address:
        seen = await context.live.machines()
    if seen is None:
        said = NOT_LOOKED if context.settings.ray_address else ONE_MACHINE
        return Nodes(autoscaler=said, missing={}, remarks=[], nodes=[])
    rows = [
        NodeRow(
            draining=(until_s := one["drains_until_s"]) is not None,
            drains_until=_when(until_s),
            **{name: one[name] for name in ("id", "host", "address", "cores", "gpus", "kinds")},
            head=one["is_head"],
        )
        for one in seen["nodes"]
    ]
    return Nodes(
        autoscaler=seen["autoscaler"],
        missing=seen["missing"],
        remarks=seen["remarks"],
        nodes=rows,
    )


def _when(until_s: float | None) -> str | None:
    return timestamp_of(until_s) if until_s else None


def _named(name: str, rows: Sequence[NodeRow]) -> NodeRow:
    """The node that is meant.

    Raises:
        NotFound: none is, or several are.
    """
    found = [row for row in rows if name == row.id]
    found = found or [row for row in rows if name in (row.host, row.address)]
    if not found and len(name) >= LEAST_PREFIX:
        found = [row for row in rows if row.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    how = "several nodes are" if found else "there is no node"
    there = some_of([f"{row.id[:12]} ({row.host}, {row.address})" for row in rows], NAMED)
    known = f"there are: {there}" if rows else "there are none"
    raise NotFound(f"{how} {name[:128]!r}; {known}")


def _refuse_gap(status: WorkerStatus, staying: Sequence[WorkerStatus]) -> None:
    """
    Raises:
        Conflict: without the worker some queries could not be answered for a while.
    """
    accepts = (
        "`--allow-gap` (`allow_gap`) accepts that, and `modelless upgrade --all` replaces all that"
        " runs and starts another one first where there is room"
    )
    if not staying:
        raise Conflict(
            f"worker {status.worker} is the only one that takes queries: until another one has "
            f"started none is answered; {accepts}"
        )
    alone = sorted(_held(status).difference(*map(_held, staying)))
    if alone:
        raise Conflict(
            f"worker {status.worker} alone holds variants of {some_of(alone, MOST_TOLD)}: "
            f"their queries have to wait until another one has loaded some; {accepts}"
        )


def _held(status: WorkerStatus) -> set[str]:
    """The tasks of which a worker holds a variant."""
    return {str(one.task) for one in status.replicas if one.state is ReplicaState.READY}


async def _leaves(context: ApiContext, worker: str, order: DrainOrder) -> Drained:
    statuses = {one.worker: one for one in await context.live.whole_worker_status()}
    status = statuses.get(worker)
    if status is None:
        raise no_worker(worker, statuses)
    if status.draining:
        raise Conflict(f"worker {worker} leaves already")
    staying = [one for one in statuses.values() if not one.draining and one.worker != worker]
    if not order.allow_gap:
        _refuse_gap(status, staying)
    said = f"by {order.by or 'an operator'}{order.why and f': {order.why}'}"
    await context.tell(happened("worker_told_to_leave", worker, said))
    done = True
    try:
        await context.live.drain(worker)
    except DeadlineExceeded:
        done = False
    had = "It has answered all that it had" if done else "It still answers what it has"
    return Drained(
        worker=worker,
        device_kind=str(status.device_kind),
        done=done,
        others=len(staying),
        sentence=f"{had}, and leaves; another one takes its place within seconds.",
    )
