"""Four routes: rules of operators, and variants that are unloaded once."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from time import time
from typing import Annotated

from fastapi import APIRouter, Path

from controlplane.api.context import ApiContext, happened
from controlplane.api.errors import TOO_LONG
from controlplane.api.path_parameters import no_worker
from controlplane.residency.orders import give, take_back
from controlplane.residency.standing import standings
from controlplane.views.catalog.variant_schemas import VariantSchema
from controlplane.views.catalog.variants import variant_row
from controlplane.views.rule_schemas import EvictionOrder, EvictionSchema, RuleOrder, RuleSchema
from controlplane.views.schemas import Schema
from variants.errors import Conflict, StateUnavailable
from variants.types import ReplicaState, Rule, RuleKind
from workers.types import WorkerStatus

RuleId = Annotated[int, Path(ge=1, le=2**53, description="Id of a rule.", examples=[1])]


class Rules(Schema):
    rules: list[RuleSchema]


def rule_routes(context: ApiContext) -> APIRouter:
    """``/v1/rules`` and ``/v1/evictions``."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/rules", summary="What operators said of what is loaded")
    async def rules() -> Rules:
        return Rules(rules=await rule_rows(context))

    @routes.post(
        "/rules",
        name="add_rule",
        status_code=201,
        summary="Pin or forbid a variant, or freeze the plan",
        description="One of each kind holds for a variant and a device kind: giving it again "
        "changes it. `CONFLICT` where it can certainly not be followed, or where there are 1,000.",
    )
    async def order(body: RuleOrder) -> RuleSchema:
        known, settings = await context.snapshot(), await context.settings_now()
        there = [status.device_kind for status in await _statuses(context)]
        rule = await asyncio.to_thread(
            give, context.catalog, known, settings, there, body.order(time())
        )
        return await _row(context, rule)

    @routes.delete("/rules/{id}", name="remove_rule", summary="Take a rule back")
    async def remove(id: RuleId) -> RuleSchema:
        rule = await asyncio.to_thread(take_back, context.catalog, id)
        return RuleSchema.of(rule, False, "It was taken back.")

    @routes.post(
        "/evictions",
        summary="Unload a variant now, once",
        description="Queries that it has are answered first. The plan may load it again: where it "
        "places it, it does so within seconds. `CONFLICT` where the variant is pinned there, or "
        "loaded nowhere.",
        responses=TOO_LONG,
    )
    async def evict(body: EvictionOrder) -> EvictionSchema:
        return await _evict(context, body)

    return routes


async def rule_rows(context: ApiContext) -> list[RuleSchema]:
    """All rules by id, with what has become of them."""
    snapshot = await context.snapshot()
    if not snapshot.rules:
        return []
    now_s, statuses = time(), await _statuses(context)
    found = await asyncio.to_thread(standings, snapshot, statuses, now_s)
    return [RuleSchema.of(rule, *found[rule.id]) for rule in snapshot.rules]


async def _row(context: ApiContext, rule: Rule) -> RuleSchema:
    rows = [row for row in await rule_rows(context) if row.id == rule.id]
    return rows[0] if rows else RuleSchema.of(rule, False, "It was taken back.")


async def _statuses(context: ApiContext) -> Sequence[WorkerStatus]:
    """What workers say; nothing while the live state does not answer."""
    try:
        return await context.live.whole_worker_status()
    except StateUnavailable:
        return []


async def _evict(context: ApiContext, body: EvictionOrder) -> EvictionSchema:
    """Have a variant unloaded where it is held, and say whether the plan loads it again.

    Raises:
        TaskNotFound, NotFound: there is no such variant or worker.
        Conflict: it is pinned there, or loaded nowhere.
    """
    snapshot = await context.snapshot()
    row = variant_row(snapshot, body.task, body.variant)
    statuses = {one.worker: one for one in await context.live.whole_worker_status()}
    if body.worker and body.worker not in statuses:
        raise no_worker(body.worker, statuses)
    name = f"{row.task}/{row.name}"
    holders = [
        status
        for id_, status in sorted(statuses.items())
        if body.worker in ("", id_) and _holds(status, row)
    ]
    _refuse_pinned(name, row, snapshot.rules, {status.device_kind for status in holders})
    if not holders:
        raise Conflict(f"{name} is not loaded on {body.worker or 'any worker'}")
    workers = [status.worker for status in holders]
    await asyncio.gather(*(context.live.unload(one, row.task, row.name) for one in workers))
    plan = await asyncio.to_thread(context.catalog.latest_plan)
    placed = {
        str(one.worker)
        for one in (plan.placements if plan is not None else ())
        if (one.task, one.variant) == (row.task, row.name)
    }
    said = f"evicted by {body.by or 'an operator'}{body.why and f': {body.why}'}"
    await context.tell(*(happened("unloaded", f"{name} on {one}", said) for one in workers))
    again = [worker for worker in workers if worker in placed]
    return EvictionSchema(
        task=row.task,
        variant=row.name,
        workers=workers,
        planned=again,
        sentence=(
            f"The plan places it on {', '.join(again)}, and loads it there again."
            if again
            else "The plan does not place it there now; it may be loaded again later, by a plan or "
            "for a query."
        ),
    )


def _holds(status: WorkerStatus, variant: VariantSchema) -> bool:
    """Whether a worker has a variant, or is loading it."""
    return any(
        (one.task, one.variant) == (variant.task, variant.name)
        and one.state in (ReplicaState.READY, ReplicaState.LOADING)
        for one in status.replicas
    )


def _refuse_pinned(
    name: str, variant: VariantSchema, rules: Iterable[Rule], kinds: Collection[str]
) -> None:
    """
    Raises:
        Conflict: a rule pins a variant to one of some device kinds.
    """
    for rule in rules:
        pinned = rule.kind is RuleKind.PIN and rule.key == (variant.task, variant.name)
        if pinned and (not rule.device_kind or rule.device_kind in kinds):
            raise Conflict(
                f"{name} is pinned by rule {rule.id}; `modelless rules remove {rule.id}` takes the "
                "pin back"
            )
