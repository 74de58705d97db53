"""Our own policy with several gateways, each of which knows what it sent and what is replied."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from planner.policies.modelless import Modelless
from planner.policies.registry import make
from planner.policies.several_gateways import SeveralGateways
from planner.selection.open_batches import TOLD_EVERY_MS
from planner.simulate import offers_of, simulate
from planner.simulation.fleet import Fleet, Replica, Ticket, Worker
from planner.simulation.policy import Brief
from planner.simulation.queries import drawn_again, gateway_of, queries_of
from planner.simulation.setting import MOST_GATEWAYS, Setting
from planner.types import Candidate, Choice, Objective, Query, Refusal
from tests.planner.simulation.builders import Asked, Model, engine_of, setting, trace
from tests.planner.simulation.watching import Watched
from variants.types import Prefer, ReplicaState, TaskName, VariantName, WorkerId

FAMILY = (
    Model("a", 0.8, 5.0, name="quick"),
    Model("a", 0.9, 20.0, name="good"),
    Model("b", 0.7, 8.0),
)
"""Two tasks, the first of them with two variants."""


def busy(count: int = 600) -> list[Asked]:
    """More than three devices serve at times, of two tasks."""
    return [Asked(2.0 + i / 300, (60.0, 150.0)[i % 2], "ab"[i % 3 % 2]) for i in range(count)]


def of(known: Setting) -> SeveralGateways:
    """The policy on a fleet that is empty so far."""
    brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
    found = make("modelless")(brief, Fleet(offers_of(known.catalog), known.kinds))
    return cast(SeveralGateways, found)


def test_one_gateway_knows_queues_as_they_are_unless_accuracy_counts() -> None:
    cheap = replace(setting(), objective=Objective.COST)
    accurate = replace(setting(), objective=Objective.ACCURACY)
    assert type(of(cheap)) is Modelless
    assert type(of(replace(cheap, gateways=2))) is SeveralGateways
    assert type(of(replace(cheap, by_replies=True))) is SeveralGateways
    assert type(of(accurate)) is SeveralGateways
    assert type(of(replace(accurate, by_replies=False))) is Modelless
    assert type(of(replace(accurate, instant=True))) is Modelless, "nobody replies without time"


@pytest.mark.parametrize("count", [0, -1, MOST_GATEWAYS + 1])
def test_no_other_number_of_gateways_is_played(count: int) -> None:
    with pytest.raises(ValueError, match="there may be 1 to 64 gateways"):
        simulate(replace(setting(), gateways=count), trace(Asked(0.0)), "modelless", clock=_zero)


def test_other_policies_are_played_with_one_gateway() -> None:
    with pytest.raises(ValueError, match="the policy hpa knows one gateway only"):
        simulate(replace(setting(), gateways=2), trace(Asked(0.0)), "hpa", clock=_zero)


def _zero() -> float:
    return 0.0


@pytest.mark.parametrize("objective", [Objective.COST, Objective.ACCURACY])
@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("stay", [False, True])
def test_every_query_has_exactly_one_outcome(count: int, objective: Objective, stay: bool) -> None:
    known = replace(
        setting(*FAMILY, devices=3, provision_s=1.0, tick_s=1.0, failures_every_s=2.5),
        objective=objective, gateways=count, by_replies=True, tasks_stay=stay,
    )  # fmt: skip

    report = simulate(known, trace(*busy()), "modelless", clock=_zero)

    assert report.requests == 600
    assert report.requests == report.in_time + report.late + report.rejected
    assert report.in_time > 200
    assert report == simulate(known, trace(*busy()), "modelless", clock=_zero)


class Replies(Watched):
    """Notes what each gateway takes a worker to have to do, whenever that worker replies."""

    def __init__(self, policy: SeveralGateways, fleet: Fleet) -> None:
        super().__init__(policy, fleet)
        self.ours = policy
        self.at_ms: list[float] = []
        self.sends = 0

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        gateway = self.ours._gateway(query)
        others = [each for each in self.ours._gateways if each is not gateway]
        before = [_known(each) for each in others]
        found = super().choose(query, now_ms)
        assert [_known(each) for each in others] == before, "another gateway knows of it"
        if isinstance(found, Choice) and not found.cold:
            self.sends += 1
            assert _known(gateway)[found.worker.id] > now_ms
        return found

    def replied(self, worker: Worker, tickets: Sequence[Ticket], now_ms: float) -> None:
        asked = [self.ours._gateway(ticket.query) for ticket in tickets]
        before = [_known(each) for each in self.ours._gateways]
        self.ours.replied(worker, tickets, now_ms)
        self.at_ms.append(now_ms)
        heard = {worker.id: now_ms + worker.queue.backlog_ms(now_ms)}
        for gateway, known in zip(self.ours._gateways, before, strict=True):
            assert _known(gateway) == (known | heard if gateway in asked else known)

    def sent(self, ticket: Ticket, now_ms: float) -> None:
        self.ours.sent(ticket, now_ms)


def _known(gateway: object) -> dict[str, float]:
    """Until when a gateway takes each worker to be busy."""
    return {str(id_): view.busy_until_ms for id_, view in vars(gateway)["_seen"].items()}


def test_a_gateway_knows_of_a_queue_what_it_sent_and_what_it_is_replied() -> None:
    known = replace(setting(*FAMILY, devices=3, tick_s=1.0), gateways=3)
    watched: list[Replies] = []

    def policy(fleet: Fleet) -> Replies:
        brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
        ours = cast(SeveralGateways, make("modelless")(brief, fleet))
        watched.append(Replies(ours, fleet))
        return watched[0]

    engine_of(known, trace(*busy()), policy)

    assert watched[0].sends > 300
    assert watched[0].at_ms == sorted(watched[0].at_ms)
    assert len(watched[0].at_ms) > 100


def test_what_is_not_of_queues_all_gateways_know_alike() -> None:
    ours = of(replace(setting(), gateways=2))
    worker = _worker(ours)
    one, other = (gateway.see([worker])[0] for gateway in ours._gateways)
    one.given(20.0, 100.0)

    worker.view.free_mib = 123.0
    worker.view.will_load((TaskName("a"), VariantName("v")), asked=True)
    worker.view.draining = True

    assert (one.busy_until_ms, other.busy_until_ms, worker.view.busy_until_ms) == (120.0, 0.0, 0.0)
    assert one.free_mib == other.free_mib == 123.0
    assert (one.draining, other.draining) == (True, True)
    assert one.loads((TaskName("a"), VariantName("v")))
    assert ours._gateways[0].see([worker])[0] is one, "it stays the same, so that snapshots do"


def _forming(ours: SeveralGateways, worker: Worker, rows: int) -> Candidate:
    """Queue queries on a worker that runs something, and let the gateways see it."""
    key = (TaskName("a"), VariantName("quick"))
    candidate = ours._fleet.offers[worker.kind.name][key]
    queue = worker.queue.add_variant("a", candidate.table)
    replica = worker.replicas[key] = Replica(key, candidate, worker, queue)
    replica.state = ReplicaState.READY
    worker.holds(key, ready=True)
    worker.queue.busy_until_ms = 150.0
    for _ in range(rows):
        worker.queue.admit(Ticket(replica, Query(TaskName("a"), 1, 100.0, 1_000.0), 1), 100.0)
    ours._fleet.workers[worker.id] = worker
    for gateway in ours._gateways:
        ours._renewed(gateway)
    return candidate


@pytest.mark.parametrize("objective", [Objective.COST, Objective.ACCURACY])
def test_a_reply_brings_others_batches_where_prices_decide(objective: Objective) -> None:
    ours = of(replace(setting(*FAMILY), gateways=2, objective=objective))
    worker = _worker(ours)
    candidate = _forming(ours, worker, 2)
    gateway, other = ours._gateways

    gateway.hears(worker, 110.0)

    batches = gateway.congestion.batches.of(TaskName("a"), 110.0)
    known = [(b.candidate.variant, b.rows, b.starts_ms) for b in batches]
    accurate = objective is Objective.ACCURACY
    assert known == ([(candidate.variant, 2, 150.0)] if accurate else [])
    assert not other.congestion.batches.of(TaskName("a"), 110.0)


def test_workers_that_have_not_replied_for_long_tell_of_their_queues_by_themselves() -> None:
    ours = of(replace(setting(*FAMILY), gateways=2))
    worker = _worker(ours)
    _forming(ours, worker, 3)
    gateway = ours._gateways[0]
    gateway.looks(ours._fleet.workers, TOLD_EVERY_MS)
    (seen,) = gateway._seen.values()
    told_ms = TOLD_EVERY_MS + worker.queue.backlog_ms(TOLD_EVERY_MS)
    assert seen.busy_until_ms == told_ms

    worker.queue.busy_until_ms = 900.0
    gateway.looks(ours._fleet.workers, 1.9 * TOLD_EVERY_MS)
    assert seen.busy_until_ms == told_ms
    gateway.looks(ours._fleet.workers, 2.0 * TOLD_EVERY_MS)
    assert seen.busy_until_ms > 900.0


def test_a_gateway_that_is_alone_expects_nothing_of_others() -> None:
    ours = of(replace(setting(*FAMILY), by_replies=True))
    worker = _worker(ours)
    _forming(ours, worker, 4)
    for at_ms in range(200, 2_000, 100):
        ours._gateways[0].hears(worker, float(at_ms))
    (seen,) = ours._gateways[0]._seen.values()
    assert seen.busy_until_ms > 1_900.0
    assert seen.others_ms == 0.0


def test_a_worker_that_comes_back_after_a_failure_is_another_one() -> None:
    ours = of(replace(setting(), gateways=2))
    gateway, worker = ours._gateways[0], _worker(ours)
    (before,) = gateway.see([worker])
    before.given(20.0, 100.0)

    (after,) = gateway.see([_worker(ours)])

    assert (after.id, after.busy_until_ms) == (before.id, 0.0)


def _worker(ours: Modelless) -> Worker:
    kind = ours._setting.kinds[0]
    return Worker(WorkerId("gpu-1"), kind, ours.queue(), 0.0)


def test_the_control_loop_counts_what_all_gateways_were_asked() -> None:
    plain = setting(*FAMILY)
    one, several = of(plain), of(replace(plain, gateways=4))
    for query in _queries(400):
        one.choose(query, query.received_ms)
        several.choose(query, query.received_ms)

    assert several._counted() == one._counted()


def _queries(count: int) -> Iterable[Query]:
    import numpy as np

    rows = [Asked(i / 100, (60.0, 150.0)[i % 2], "ab"[i % 3 % 2]) for i in range(count)]
    return queries_of(trace(*rows), Prefer.COST, np.random.default_rng(0))


@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_queries_are_dealt_evenly_and_come_back_to_their_gateway(count: int) -> None:
    known = replace(setting(), gateways=count)
    queries = list(_queries(6_400))
    dealt = Counter(gateway_of(query, count) for query in queries)

    assert set(dealt) == set(range(count))
    assert max(dealt.values()) < 1.7 * 6_400 / count
    for query, other in zip(queries, reversed(queries), strict=True):
        again = query._replace(draw=drawn_again(query.draw, other.draw, known))
        assert gateway_of(again, count) == gateway_of(query, count)
        assert again.draw % 2**46 == other.draw % 2**46


def test_with_one_gateway_a_query_is_drawn_anew_as_it_was() -> None:
    assert drawn_again(5, 2**61 + 7, setting()) == 2**61 + 7


def test_a_task_may_stay_with_one_gateway() -> None:
    ours = of(replace(setting(*FAMILY), gateways=2, tasks_stay=True))
    at = {query.task: ours._gateway(query) for query in _queries(50)}

    assert at == {TaskName("a"): ours._gateways[0], TaskName("b"): ours._gateways[1]}
