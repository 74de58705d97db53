"""A gateway follows the plan: it learns of routes, keeps them, and goes elsewhere when refused."""

import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
import pytest

from controlplane.path import QueryPath
from controlplane.query import parse_v1
from planner.following import PATIENCE
from planner.routes import resolve
from tests.controlplane.fleet import FailingCatalog
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KIND,
    SLOW,
    TASK,
    Served,
    query,
    serving,
    until,
)
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    profile,
    snapshot,
    task,
    variant,
    worker,
)
from variants.memory import MemoryCatalog
from variants.types import Plan, Prefer, Route, TaskName, VariantName, WorkerId
from workers.channel import Reply, WorkerConnection
from workers.types import ReplyCode


@pytest.fixture
async def served(live_url: str) -> AsyncIterator[Served]:
    # A socket's path may hold 107 bytes, too few for a test's own folder.
    with tempfile.TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        async with serving(Path(folder), live_url, objective="accuracy") as running:
            yield running


def route(variant: str, worker: str = "w1", task: str = TASK.name) -> Route:
    """All of the class of queries that have half a second."""
    return Route(
        task=TaskName(task), latency_ms=500.0, accuracy=None, variant=VariantName(variant),
        worker=WorkerId(worker), batch_size=1, qps=10.0,
    )  # fmt: skip


def planned(variant: str, epoch: int) -> Plan:
    return Plan(
        version=0, epoch=epoch, placements=(), workers={KIND.name: 1}, routes=(route(variant),)
    )


async def plan(served: Served, variant: str) -> None:
    """Store a plan with one route, announce it, and wait until it is followed."""
    stored = served.gateway.catalog
    before = stored.plan_version()
    epoch = stored.acquire_leadership("test")
    stored.put_plan(
        Plan(
            version=0, epoch=epoch, placements=(), workers={KIND.name: 1}, routes=(route(variant),)
        )
    )
    await served.gateway.live.notify("plan")
    routes = served.gateway.path.routes
    await until(lambda: served.gateway.path.routes is not routes)
    assert stored.plan_version() == before + 1


async def answered_by(served: Served, **slo: Any) -> str:
    answer = await served.ask(query(variant=None, slo={"latency_ms": 500.0, **slo}))
    return str(answer.json["variant"])


async def test_queries_that_prefer_what_the_plan_optimised_follow_it(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE, SLOW)
    assert await answered_by(served, prefer="accuracy") == SLOW
    await plan(served, DOUBLE)
    assert await answered_by(served, prefer="accuracy") == DOUBLE
    assert await answered_by(served, prefer="cost") == FAST
    assert await answered_by(served) == FAST
    await plan(served, SLOW)
    assert await answered_by(served, prefer="accuracy") == SLOW


@pytest.mark.parametrize(("elastic", "variant"), [(True, DOUBLE), (False, FAST)])
async def test_a_plan_for_cost_is_followed_where_it_decides_how_many_workers_run(
    live_url: str, elastic: bool, variant: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        async with serving(Path(folder), live_url, elastic=elastic) as served:
            await served.worker("w1", FAST, DOUBLE)
            stored = served.gateway.catalog
            epoch = stored.acquire_leadership("test")
            stored.put_plan(planned(DOUBLE, epoch))
            await served.gateway._refresh_plan()
            assert await answered_by(served) == variant


async def test_what_a_route_names_is_followed_once_it_is_loaded(served: Served) -> None:
    await served.worker("w1", FAST)
    await plan(served, DOUBLE)
    assert await answered_by(served, prefer="accuracy") == FAST
    await served.join("w1", served.addresses["w1"], DOUBLE)
    assert await answered_by(served, prefer="accuracy") == DOUBLE


async def test_without_the_database_the_last_plan_is_followed(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE, SLOW)
    await plan(served, DOUBLE)
    away = FailingCatalog(cast(MemoryCatalog, served.gateway.catalog))
    away.away = True
    served.gateway.catalog = cast(Any, away)
    for _ in range(3):
        await served.gateway.live.notify("plan")
        assert await answered_by(served, prefer="accuracy") == DOUBLE


# -- refusals ------------------------------------------------------------------------------------


class Refusing:
    """A connection to a worker that answers at once, as it is told to."""

    def __init__(self, code: ReplyCode) -> None:
        self.code = code
        self.asked = 0

    def infer(self, *arguments: Any) -> None:
        self.asked += 1
        replied: Callable[[Reply], None] = arguments[-1]
        outputs = [np.zeros((1, 10), np.float32)] if self.code is ReplyCode.OK else []
        replied(Reply(self.code, 1, 0, 0, 0, "", outputs))


class Door:
    """A query path over two workers that hold the same variant, the first with a route."""

    def __init__(self, first: ReplyCode, second: ReplyCode) -> None:
        self.first, self.second = Refusing(first), Refusing(second)
        self.answers: list[int] = []
        one = catalog([variant("a")], [profile("a")])
        seen = snapshot(one, (worker("w1"), {key("a")}), (worker("w2"), {key("a")}))

        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: NOW_MS)
        self.path.tasks = {DIGITS: task()}
        self.path.snapshot = seen
        self.path.routes = resolve([route("a", task=DIGITS)], seen, Prefer.COST)
        self.path.connections = cast(
            dict[WorkerId, WorkerConnection],
            {WorkerId("w1"): self.first, WorkerId("w2"): self.second},
        )

    def ask(self) -> None:
        body = {"task": DIGITS, "inputs": [[0.0] * 64], "slo": {"latency_ms": 500.0}}
        asked = parse_v1(orjson.dumps(body), self.path.tasks, NOW_MS, 0)
        self.path.start(asked, lambda status, *_: self.answers.append(status))

    @property
    def patience(self) -> float:
        return self.path.patience.at(NOW_MS)


async def test_a_query_that_is_refused_on_its_route_is_tried_once_elsewhere() -> None:
    door = Door(ReplyCode.OVERLOADED, ReplyCode.OK)
    door.ask()
    assert (door.answers, door.first.asked, door.second.asked) == ([200], 1, 1)
    assert door.patience < PATIENCE


async def test_each_refusal_costs_patience_and_a_query_is_answered_once() -> None:
    once, twice = (
        Door(ReplyCode.OVERLOADED, code) for code in (ReplyCode.OK, ReplyCode.OVERLOADED)
    )
    once.ask()
    twice.ask()
    assert (twice.answers, twice.first.asked, twice.second.asked) == ([503], 1, 1)
    assert twice.patience < once.patience
    assert twice.path.counters.in_flight == 0


async def test_what_is_no_sign_of_a_crowd_costs_no_patience() -> None:
    door = Door(ReplyCode.DRAINING, ReplyCode.OK)
    door.ask()
    assert (door.answers, door.patience) == ([200], PATIENCE)
