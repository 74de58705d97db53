"""Demand: a query counts unless no variant could ever answer it, whatever the plan."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest

from controlplane.gateway.query.query_path import QueryPath
from planner.selection.routes import EMPTY
from planner.selection.select import suited
from planner.types import WorkerView
from tests.controlplane.gateway.test_plan_following import Refusing
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    kind,
    profile,
    query,
    snapshot,
    task,
    variant,
    version,
    worker,
)
from variants.types import (
    CatalogSnapshot,
    Digest,
    Prefer,
    Stage,
    TaskName,
    TextInput,
    VariantKey,
    VariantName,
    WorkerId,
)
from workers.channel.client import WorkerConnection
from workers.types import ReplyCode

# With the margin, slow takes 12 ms for a row and quick 1.2 ms; both take up to 8 rows.
SLOW, QUICK = profile("slow", 10.0), profile("quick", 1.0, kind="gpu")
TWO_KINDS = catalog(
    [variant("slow"), variant("quick", 0.8)], [SLOW, QUICK], kinds=[kind(), kind("gpu")]
)
CPU_HOLDING_SLOW = (worker("w1"), {key("slow")})


class Full(Refusing):
    """A worker that refuses all that it is sent."""

    def __init__(self) -> None:
        super().__init__(ReplyCode.OVERLOADED)

    def catch_up(self) -> None:
        """Nothing waits: it answers at once."""


class Path:
    """A query path whose workers refuse for want of room; its clock stands."""

    def __init__(
        self,
        known: CatalogSnapshot = TWO_KINDS,
        *workers: tuple[WorkerView, set[VariantKey]],
    ) -> None:
        self.codes: list[str] = []
        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: NOW_MS)
        answering = {WorkerId(view.id): Full() for view, _ in workers}
        self.path.update(
            snapshot=snapshot(known, *workers),
            routes=EMPTY,
            tasks={DIGITS: task()},
            connections=cast(dict[WorkerId, WorkerConnection], answering),
        )

    def ask(self, rows: int = 1, variant: str | None = None, **fields: Any) -> None:
        best_effort = fields.pop("best_effort", False)
        asked: dict[str, Any] = {"task": DIGITS, "inputs": [[0.25] * 64] * rows, "slo": fields}
        asked |= {"variant": variant, "best_effort": best_effort}
        self.path.handle_v1(orjson.dumps(asked), NOW_MS, self.answered)

    def answered(self, status: int, body: bytes, headers: bytes) -> None:
        self.codes.append(orjson.loads(body).get("code", "OK"))

    @property
    def counted(self) -> int:
        return sum(self.path.demand.take().values())


@pytest.mark.parametrize(
    "asked",
    [
        {"rows": 9, "latency_ms": 1_000},
        {"latency_ms": 1_000, "accuracy": 0.99},
        {"rows": 9, "latency_ms": 1_000, "best_effort": True},
        {"rows": 9, "latency_ms": 1_000, "variant": "slow"},
    ],
    ids=["rows", "accuracy", "rows with best effort", "pinned"],
)
async def test_what_no_variant_could_answer_is_no_demand(asked: dict[str, Any]) -> None:
    path = Path(TWO_KINDS, CPU_HOLDING_SLOW)
    path.ask(**asked)
    assert (path.codes, path.counted) == (["SLO_INFEASIBLE"], 0)


@pytest.mark.parametrize(
    "asked",
    [
        {"latency_ms": 1},
        {"latency_ms": 1_000, "cost": 1e-9},
        {"latency_ms": 5, "variant": "slow"},
    ],
    ids=["latency", "cost", "pinned"],
)
async def test_what_a_wrong_profile_could_refuse_is_demand(asked: dict[str, Any]) -> None:
    """That it is asked for is how a profile is found out that says too much."""
    path = Path(TWO_KINDS, CPU_HOLDING_SLOW)
    path.ask(**asked)
    assert (path.codes, path.counted) == (["SLO_INFEASIBLE"], 1)


@pytest.mark.parametrize(
    ("asked", "counts_for_ms"),
    [
        ({"latency_ms": 11}, 10 - 1e-9),  # a row takes 12 ms: 11 is of the class of 10 to 20
        ({"latency_ms": 4}, 4),
        ({"latency_ms": 11, "variant": "slow"}, 10 - 1e-9),
        ({"latency_ms": 11, "best_effort": True}, 10 - 1e-9),
        ({"latency_ms": 60, "rows": 8}, 60 / 8),  # as rows with so much less time
        ({"latency_ms": 90, "rows": 8}, 10 - 1e-9),
    ],
)
async def test_who_asks_for_less_time_than_any_variant_takes_counts_for_a_class_that_is_too_tight(
    asked: dict[str, Any], counts_for_ms: float
) -> None:
    """Of a class the tightest SLO is planned for, and those that can be met would go without."""
    known = catalog([variant("slow")], [SLOW])
    path = Path(known, CPU_HOLDING_SLOW)
    path.ask(latency_ms=15)
    path.ask(**asked)
    fields = (asked.get("rows", 1), asked.get("variant"))
    counted = path.path.demand.take()
    assert counted.pop((DIGITS, 15.0, None, None)) == 1
    [((*_, latency_ms, _, pin), rows)] = counted.items()
    assert latency_ms == pytest.approx(counts_for_ms)
    assert (rows, pin) == fields


async def test_who_would_pay_less_than_any_variant_costs_counts_for_a_class_that_is_too_tight() -> (
    None
):
    """Classes know no price: workers would be held for it, and it is refused all the same."""
    known = catalog([variant("slow")], [SLOW])
    path = Path(known, CPU_HOLDING_SLOW)
    [candidate] = path.path.snapshot.tasks[DIGITS].by_cost
    path.ask(latency_ms=15)
    path.ask(latency_ms=15, cost=candidate.price_usd_per_1k / 2)
    path.ask(latency_ms=15, cost=candidate.price_usd_per_1k)
    assert path.codes == ["OVERLOADED", "SLO_INFEASIBLE", "OVERLOADED"]
    counted = path.path.demand.take()
    assert counted.pop((DIGITS, 15.0, None, None)) == 2
    [((*_, latency_ms, _, _), rows)] = counted.items()
    assert latency_ms == pytest.approx(12 / 2)  # half the price is half the time
    assert rows == 1


async def test_who_pays_only_for_what_is_too_slow_counts_for_a_class_that_is_too_tight() -> None:
    """Of two variants the quick one costs too much, and the cheap one takes too long."""
    known = catalog(
        [variant("slow"), variant("quick", 0.8)],
        [SLOW, QUICK],
        kinds=[kind(), kind("gpu", usd_per_hour=100.0)],
    )
    path = Path(known, CPU_HOLDING_SLOW, (worker("w2", kind="gpu"), {key("quick")}))
    prices = {c.variant: c.price_usd_per_1k for c in path.path.snapshot.tasks[DIGITS].by_cost}
    path.ask(latency_ms=6, cost=2 * prices[VariantName("slow")])
    assert path.codes == ["SLO_INFEASIBLE"]
    [((*_, latency_ms, _, _), rows)] = path.path.demand.take().items()
    assert (latency_ms < 1.2, rows) == (True, 1)


async def test_what_a_cheaper_kind_without_workers_could_answer_is_demand_like_any_other() -> None:
    known = catalog(
        [variant("slow"), variant("quick", 0.8)],
        [SLOW, QUICK],
        kinds=[kind(usd_per_hour=100.0), kind("gpu")],
    )
    path = Path(known, CPU_HOLDING_SLOW)
    prices = {c.variant: c.price_usd_per_1k for c in path.path.snapshot.tasks[DIGITS].by_cost}
    path.ask(latency_ms=15, cost=2 * prices[VariantName("quick")])
    assert path.codes == ["SLO_INFEASIBLE"]
    assert path.path.demand.take() == {(DIGITS, 15.0, None, None): 1}


async def test_what_only_a_kind_could_answer_in_time_that_may_come_is_demand_for_it() -> None:
    """A row takes 12 ms on the kind that is there, and 11 is of the class of 10 to 20."""
    path = Path(TWO_KINDS, CPU_HOLDING_SLOW)
    path.ask(latency_ms=11)
    [((*_, latency_ms, _, _), _)] = path.path.demand.take().items()
    assert latency_ms < 10
    path.path.demand.coming = {kind("gpu").name}
    path.ask(latency_ms=11)
    assert path.codes == ["SLO_INFEASIBLE", "SLO_INFEASIBLE"]
    assert path.path.demand.take() == {(DIGITS, 11.0, None, None): 1}


async def test_best_effort_is_answered_whatever_it_costs_and_counts_like_any_other() -> None:
    path = Path(catalog([variant("slow")], [SLOW]), CPU_HOLDING_SLOW)
    path.ask(latency_ms=15, cost=1e-9, best_effort=True)
    assert path.path.demand.take() == {(DIGITS, 15.0, None, None): 1}


async def test_it_takes_nothing_from_what_others_ask_for() -> None:
    path = Path(TWO_KINDS, CPU_HOLDING_SLOW)
    path.ask(3, latency_ms=1_000)
    path.ask(9, latency_ms=1_000)
    path.ask(2, latency_ms=1_000)
    assert (path.codes[1], path.counted) == ("SLO_INFEASIBLE", 5)


async def test_what_only_a_kind_without_workers_could_answer_is_demand() -> None:
    path = Path(TWO_KINDS, CPU_HOLDING_SLOW)
    path.ask(latency_ms=5)
    assert (path.codes, path.counted) == (["SLO_INFEASIBLE"], 1)


async def test_without_any_worker_only_what_could_be_answered_is_demand() -> None:
    path = Path()
    path.ask(latency_ms=1_000)
    path.ask(9, latency_ms=1_000)
    assert (path.codes, path.counted) == (["NO_WORKERS", "SLO_INFEASIBLE"], 1)


async def test_what_is_refused_for_want_of_room_is_demand() -> None:
    path = Path(TWO_KINDS, CPU_HOLDING_SLOW)
    for _ in range(3):
        path.ask(latency_ms=1_000)
    assert (path.codes, path.counted) == (["OVERLOADED"] * 3, 3)


@pytest.mark.parametrize(
    "asked",
    [
        {"latency_ms": 5},
        {"latency_ms": 1_000, "accuracy": 0.99},
        {"latency_ms": 1_000, "cost": 1e-9},
        {"latency_ms": 5, "variant": "slow"},
    ],
    ids=["latency", "accuracy", "cost", "pinned"],
)
async def test_best_effort_that_its_only_worker_refuses_is_told_so(asked: dict[str, Any]) -> None:
    """Not that its SLO cannot be met, which it does without, and which none would ask again for."""
    path = Path(TWO_KINDS, CPU_HOLDING_SLOW)
    path.ask(best_effort=True, **asked)
    assert (path.codes, path.counted) == (["OVERLOADED"], 1)


async def test_what_no_worker_could_load_so_far_is_demand() -> None:
    path = Path(TWO_KINDS, (worker("w1", kind="gpu"), set()))
    path.ask(latency_ms=1_000, accuracy=0.85)  # only slow is as accurate, which gpu cannot run
    assert path.counted == 1


async def test_a_variant_that_is_not_in_service_makes_no_demand() -> None:
    retired = catalog([variant("slow")], [SLOW], stages={"slow": Stage.RETIRED})
    path = Path(retired, (worker("w1"), set()))
    path.ask(latency_ms=1_000, variant="slow")
    assert (path.codes, path.counted) == (["NOT_FOUND"], 0)


async def test_late_best_effort_is_demand_where_a_variant_could_answer_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, loading = Path(TWO_KINDS, (worker("w1"), set())), asyncio.Future[None]()
    monkeypatch.setattr(path.path, "load", lambda *_: loading)
    path.ask(latency_ms=1, best_effort=True)
    loading.set_result(None)
    await asyncio.sleep(0)
    assert (path.codes, path.counted) == (["COLD"], 1)


def test_what_is_kept_of_a_task_goes_with_it() -> None:
    path = Path(TWO_KINDS, CPU_HOLDING_SLOW).path
    path.id_of(DIGITS, "slow")
    path.held |= {DIGITS: 0, TaskName("busy"): 1}
    path.update(snapshot=path.snapshot, routes=EMPTY, tasks={}, connections=path.connections)
    assert (path.held, path._ids, path._free_ms) == ({"busy": 1}, {}, {})


TOO_LONG = ((None, "makes 9 tokens of text 0, and takes 8 at most"),)


def holding_quick(*workers: Any) -> Path:
    """Whose texts are too long for the task's own tokenizer only quick can answer, and dear."""
    known = replace(
        TWO_KINDS,
        versions=(*TWO_KINDS.versions, version("dear")),
        variants=(*TWO_KINDS.variants, variant("dear", 0.95)),
        profiles=(*TWO_KINDS.profiles, profile("dear", 20.0), profile("quick", 5.0)),
    )
    path = Path(known, *workers)
    own = TextInput(tokenizer=Digest("1" * 64), ids="pixels")
    path.path.holding.follow({(DIGITS, f"{name}-v1"): own for name in ("quick", "dear")})
    return path


@pytest.mark.parametrize(
    ("asked", "counts_for"),
    [
        ({}, "quick"),
        ({"accuracy": 0.9}, "dear"),
        ({"accuracy": 0.99}, "quick"),  # none has that: what is cheapest
        ({"prefer": Prefer.ACCURACY}, "dear"),
        ({"prefer": Prefer.LATENCY}, "quick"),
        ({"variant": VariantName("dear")}, "dear"),
        ({"unread": ()}, None),
    ],
)
async def test_what_only_some_versions_hold_counts_for_who_would_answer(
    asked: dict[str, Any], counts_for: str | None
) -> None:
    path = holding_quick((worker("w1"), {key("dear")}))
    text = query(latency_ms=1_000, task=DIGITS, rows=2)._replace(unread=TOO_LONG)._replace(**asked)
    path.path.demand.count(text)
    wanted = {(DIGITS, 1_000.0, text.accuracy, counts_for): 2}
    assert path.path.demand.take() == wanted


async def test_what_only_some_versions_hold_is_no_demand_if_none_of_these_could_answer() -> None:
    path = holding_quick((worker("w1"), {key("dear")})).path
    text = query(latency_ms=1_000, task=DIGITS, rows=2, accuracy=0.99)._replace(unread=TOO_LONG)
    path.demand.count(text)
    path.demand.count(text)
    path.demand.discount(text)
    assert path.demand.take() == {(DIGITS, 1_000.0, 0.99, "quick"): 2}


def test_what_suits_a_query_is_something_that_may_come() -> None:
    text = query(latency_ms=1_000, task=DIGITS)
    for workers, suits in (((), "quick"), ((CPU_HOLDING_SLOW,), "slow")):
        found = suited(snapshot(TWO_KINDS, *workers), text)
        assert found is not None
        assert found.variant == suits
    assert suited(snapshot(TWO_KINDS), text._replace(task=TaskName("no"))) is None
