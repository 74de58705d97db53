"""A gateway follows the plan: it learns of routes, keeps them, and goes elsewhere when refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
import pytest

from controlplane.gateway.query.parsing import parse_v1
from controlplane.gateway.query.query_path import QueryPath
from planner.selection.plan_following import WINDOW
from planner.selection.routes import resolve
from planner.types import Query
from tests.controlplane.fleet import FailingCatalog
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KIND,
    LATE,
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
from variants.catalog.memory import MemoryCatalog
from variants.types import Plan, Prefer, Route, TaskName, VariantName, WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.types import ReplyCode

LATENCY_MS = 30_000.0
"""What the queries have: enough on a machine that others keep busy."""


def route(variant: str, worker: str = "w1", task: str = TASK.name, qps: float = 100_000.0) -> Route:
    """All of the class of queries that have ``LATENCY_MS``."""
    return Route(
        task=TaskName(task), latency_ms=LATENCY_MS, accuracy=None, variant=VariantName(variant),
        worker=WorkerId(worker), batch_size=1, qps=qps,
    )  # fmt: skip


def planned(variant: str, epoch: int, qps: float = 100_000.0) -> Plan:
    return Plan(
        version=0,
        epoch=epoch,
        placements=(),
        workers={KIND.name: 1},
        routes=(route(variant, qps=qps),),
    )


async def plan(served: Served, variant: str, qps: float = 100_000.0) -> None:
    """Store a plan with one route, announce it, and wait until it is followed."""
    stored = served.gateway.catalog
    before = stored.marks().plan_version
    epoch = stored.acquire_leadership("test")
    stored.put_plan(planned(variant, epoch, qps))
    await served.gateway.live.notify("plan")
    routes = served.gateway.path.routes
    await until(lambda: served.gateway.path.routes is not routes)
    assert stored.marks().plan_version == before + 1


async def answered_by(served: Served, **slo: Any) -> str:
    answer = await served.ask(query(variant=None, slo={"latency_ms": LATENCY_MS, **slo}))
    return str(answer.json["variant"])


async def test_queries_that_prefer_what_the_plan_optimised_follow_it(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE, SLOW)
    assert await answered_by(served, prefer="cost") == FAST
    await plan(served, DOUBLE)
    assert await answered_by(served, prefer="cost") == DOUBLE
    assert await answered_by(served) == DOUBLE
    assert await answered_by(served, prefer="accuracy") == SLOW
    await plan(served, FAST)
    assert await answered_by(served, prefer="cost") == FAST


async def test_where_plans_are_for_accuracy_prices_decide(
    short_folder: Path, live_url: str
) -> None:
    """The plan says the fast one; the time of an idle worker costs next to nothing."""
    async with serving(short_folder, live_url, objective="accuracy") as served:
        await served.worker("w1", FAST, DOUBLE, SLOW)
        await plan(served, FAST)
        slo = {"latency_ms": LATENCY_MS, "prefer": "accuracy"}
        answer = await served.ask(query(variant=None, slo=slo))
        assert answer.json["variant"] == SLOW
        assert answer.headers["x-choice-reason"] == "planned"
        assert await answered_by(served, prefer="cost") == FAST


@pytest.mark.parametrize("elastic", [True, False])
async def test_a_plan_for_cost_is_followed_by_default(
    short_folder: Path, live_url: str, elastic: bool
) -> None:
    """The default of a fixed fleet, and where the plan decides how many workers run."""
    async with serving(short_folder, live_url, elastic=elastic) as served:
        await served.worker("w1", FAST, DOUBLE)
        stored = served.gateway.catalog
        epoch = stored.acquire_leadership("test")
        stored.put_plan(planned(DOUBLE, epoch))
        await served.gateway.known.refresh_plan(stored.marks())
        assert await answered_by(served) == DOUBLE


async def test_a_gateway_chooses_by_what_batches_take(served: Served) -> None:
    """The profile promises 1 ms for a batch that takes 150."""
    await served.worker("w1", LATE)

    def predicted_ms() -> float:
        view = served.gateway.path.snapshot.tasks[TASK.name]
        return next(c.table.ms[1] for c in view.by_cost if c.variant == LATE)

    before_ms = predicted_ms()
    for _ in range(15):
        answer = await served.ask(query(variant=LATE, slo={"latency_ms": 5_000.0}))
        assert answer.status == 200
    await until(lambda: predicted_ms() > 1.1 * before_ms)


async def test_an_answer_says_why_its_variant_was_chosen(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    await plan(served, DOUBLE)
    found = []
    for slo in ({"prefer": "cost"}, {"prefer": "accuracy"}, {"prefer": "latency"}):
        answer = await served.ask(query(variant=None, slo={"latency_ms": LATENCY_MS, **slo}))
        found.append(answer.headers["x-choice-reason"])
    assert found == ["planned", "most_accurate_that_fits", "earliest_completion"]
    assert served.gateway.path.counters.task(TASK.name).choices == dict.fromkeys(found, 1)


async def test_what_a_route_names_is_followed_once_it_is_loaded(served: Served) -> None:
    await served.worker("w1", FAST)
    await plan(served, DOUBLE)
    assert await answered_by(served, prefer="cost") == FAST
    await served.join("w1", served.addresses["w1"], DOUBLE)
    assert await answered_by(served, prefer="cost") == DOUBLE


async def test_without_the_database_the_last_plan_is_followed(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE, SLOW)
    await plan(served, DOUBLE)
    away = FailingCatalog(cast(MemoryCatalog, served.gateway.catalog))
    away.away = True
    served.gateway.known._source = cast(Any, away)
    for _ in range(3):
        await served.gateway.live.notify("plan")
        assert await answered_by(served, prefer="cost") == DOUBLE


# -- refusals ------------------------------------------------------------------------------------


class Refusing:
    """A connection to a worker that answers at once, as it is told to."""

    def __init__(self, code: ReplyCode) -> None:
        self.code = code
        self.said = ""
        self.asked = 0

    def infer(self, *arguments: Any) -> None:
        self.asked += 1
        replied: Callable[[Reply], None] = arguments[4]
        outputs = [np.zeros((1, 10), np.float32)] if self.code is ReplyCode.OK else []
        replied(Reply(self.code, 1, 0, 0, 0, self.said, outputs))


class TwoWorkerPath:
    """A query path over two workers that hold the same variant, the first with a route."""

    def __init__(self, first: ReplyCode, second: ReplyCode) -> None:
        self.first, self.second = Refusing(first), Refusing(second)
        self.answers: list[int] = []
        one = catalog([variant("a")], [profile("a")])
        seen = snapshot(one, (worker("w1"), {key("a")}), (worker("w2"), {key("a")}))

        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: NOW_MS)
        self.path.update(
            snapshot=seen,
            routes=resolve([route("a", task=DIGITS)], seen, Prefer.COST),
            tasks={DIGITS: task()},
            connections=cast(
                dict[WorkerId, WorkerConnection],
                {WorkerId("w1"): self.first, WorkerId("w2"): self.second},
            ),
        )

    def ask(self) -> None:
        body = {"task": DIGITS, "inputs": [[0.0] * 64], "slo": {"latency_ms": LATENCY_MS}}
        parsed = parse_v1(orjson.dumps(body), self.path.tasks, NOW_MS, 0)
        self.path.start(parsed, lambda status, *_: self.answers.append(status))

    @property
    def window(self) -> float:
        return self.path.congestion.at(NOW_MS)


async def test_a_query_that_is_refused_on_its_route_is_tried_once_elsewhere() -> None:
    path = TwoWorkerPath(ReplyCode.OVERLOADED, ReplyCode.OK)
    path.ask()
    assert (path.answers, path.first.asked, path.second.asked) == ([200], 1, 1)
    assert path.window < WINDOW
    like_it = Query(DIGITS, 1, NOW_MS, LATENCY_MS)
    full = [path.path.congestion.is_full(WorkerId(name), like_it, NOW_MS) for name in ("w1", "w2")]
    assert full == [True, False], "it is remembered who had no time"


async def test_each_refusal_narrows_the_window_and_a_query_is_answered_once() -> None:
    once, twice = (
        TwoWorkerPath(ReplyCode.OVERLOADED, code) for code in (ReplyCode.OK, ReplyCode.OVERLOADED)
    )
    once.ask()
    twice.ask()
    assert (twice.answers, twice.first.asked, twice.second.asked) == ([503], 1, 1)
    assert twice.window < once.window
    assert twice.path.counters.in_flight == 0


async def test_what_is_no_sign_of_a_crowd_leaves_the_window() -> None:
    path = TwoWorkerPath(ReplyCode.DRAINING, ReplyCode.OK)
    path.ask()
    assert (path.answers, path.window) == ([200], WINDOW)
