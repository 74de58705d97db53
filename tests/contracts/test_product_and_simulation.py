"""The simulator's policy ``modelless`` plays the product: same settings, same decisions.

A gateway looks at the simulated fleet and plan, and has to choose what the policy chooses for every
query; the control loop's estimator has to expect what the policy's expects. Only the way to a
worker and back takes no time in a simulation, so the gateway's snapshot is told so here.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import cast

import pytest

from controlplane.controller.arrivals import Arrivals
from controlplane.demand_counters import accuracies_of, counter_name
from controlplane.gateway.connected_worker import ConnectedWorker
from controlplane.gateway.gateway import Gateway
from controlplane.load_specs import Specs
from controlplane.settings import load_settings
from planner.forecasting.estimator_of import estimator_of
from planner.planning_settings import DEFAULTS, PlanningSettings
from planner.policies.modelless import Modelless
from planner.policies.registry import make
from planner.selection.plan_following import choose
from planner.simulation.fleet import Fleet, Replica, Worker
from planner.simulation.policy import Brief
from planner.simulation.setting import Setting
from planner.types import Action, Choice, Objective, Query, Reason, Refusal
from tests.contracts.test_policy import MODELS, steady
from tests.controlplane.serving import Known, query, serving, until
from tests.planner.simulation.builders import Asked, Model, engine_of, setting, trace
from tests.planner.simulation.watching import Watched
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.types import ReplicaState, TaskName, VariantName, WorkerId
from workers.channel.client import WorkerConnection
from workers.types import WorkerStatus

FIXED_AND_ELASTIC = [
    PlanningSettings(objective=objective, elastic=elastic)
    for objective in Objective
    for elastic in (False, True)
]


def simulated(planning: PlanningSettings) -> Setting:
    """A simulation of three devices under these settings."""
    return replace(
        setting(*MODELS, devices=3, provision_s=2.0, tick_s=2.0),
        objective=planning.objective,
        elastic=planning.elastic,
        eviction=planning.eviction,
        batching=planning.batching,
        linger_s=planning.linger_s,
    )


def test_the_product_s_defaults_are_the_simulator_s(tmp_path: Path) -> None:
    assert load_settings(state_dir=tmp_path).planning == DEFAULTS
    assert simulated(DEFAULTS).planning == DEFAULTS
    known = setting(*MODELS)
    plain = Setting(catalog=known.catalog, kinds=known.kinds)
    assert replace(plain, elastic=False).planning == DEFAULTS


@pytest.mark.parametrize(
    "planning",
    [
        *FIXED_AND_ELASTIC,
        PlanningSettings(eviction="lru", batching="aimd", linger_s=7.0),
    ],
    ids=str,
)
def test_a_setting_means_the_same_in_both(tmp_path: Path, planning: PlanningSettings) -> None:
    product = load_settings(
        state_dir=tmp_path,
        objective=planning.objective.value,
        elastic=planning.elastic,
        eviction=planning.eviction,
        batching=planning.batching,
        linger_s=planning.linger_s,
    )
    assert product.planning == simulated(planning).planning == planning


class Compared(Watched):
    """Asks a gateway what it would choose whenever the policy is asked."""

    def __init__(self, policy: Modelless, fleet: Fleet, gateway: Gateway, known: Setting) -> None:
        super().__init__(policy, fleet)
        self.gateway = gateway
        self.known = known
        self.reasons: set[Reason] = set()

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        found = super().choose(query, now_ms)
        self._same(found, query, now_ms)
        return found

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        found = super().again(query, now_ms)
        assert found is not None
        self._same(found, query, now_ms)
        return found

    def refused(self, query: Query, worker: WorkerId, now_ms: float) -> None:
        super().refused(query, worker, now_ms)
        twice = query if query.avoid is not None else None
        self.gateway.path.congestion.had_no_time(worker, query, now_ms)
        self.gateway.path.congestion.refused(now_ms, twice=twice)

    def tick(self, now_s: float) -> Iterable[Action]:
        actions = super().tick(now_s)
        plan = cast(Modelless, self.policy).plan
        if plan is not None:
            self.gateway.known._routes = plan.routes
        return actions

    def _same(self, found: Choice | Refusal, query: Query, now_ms: float) -> None:
        gateway = self.gateway
        gateway.known.catalog = self.known.catalog
        gateway.known.workers._workers = {
            id_: _connected(worker) for id_, worker in self.fleet.workers.items()
        }
        gateway.known.rebuild()
        path = gateway.path
        snapshot = replace(path.snapshot, transport_ms=0.0)
        theirs = choose(snapshot, path.routes, path.congestion, query, now_ms)
        if isinstance(found, Choice):
            assert isinstance(theirs, Choice)
            assert _which(theirs) == _which(found)
            self.reasons.add(Reason(found.reason))
            if not theirs.cold:
                # As the gateway does when it sends a query.
                longest_ms = path.routes.longest_ms(theirs.worker.id, query.latency_ms)
                path.congestion.batches.sent(
                    theirs.candidate, theirs.worker, query.rows, now_ms, longest_ms
                )
        else:
            assert isinstance(theirs, Refusal)
            assert theirs.code is found.code


def _connected(worker: Worker) -> ConnectedWorker:
    """A simulated worker as a gateway knows it once the worker has reported."""
    made = ConnectedWorker.__new__(ConnectedWorker)  # without a connection
    made.view = worker.view
    status = WorkerStatus(
        worker=worker.id, device_kind=worker.kind.name, memory_mib=worker.kind.memory_mib,
        reserved_mib=worker.reserved_mib, draining=worker.draining, backlog_us=0, busy_ratio=0.0,
        replicas=(),
    )  # fmt: skip
    made.connection = cast(WorkerConnection, SimpleNamespace(status=status))
    made.ready = frozenset(
        key for key, r in worker.replicas.items() if r.state is ReplicaState.READY
    )
    made.unloadable = {}
    made._begun = {}
    return made


def _which(choice: Choice) -> tuple[object, ...]:
    """What a choice names, by values: candidates of two snapshots are different objects."""
    candidate = choice.candidate
    return (candidate.variant, choice.worker.id, choice.predicted_ms, choice.cold, choice.reason)


@pytest.mark.parametrize("planning", FIXED_AND_ELASTIC, ids=str)
def test_a_gateway_chooses_what_the_simulated_policy_chooses(
    tmp_path: Path, planning: PlanningSettings
) -> None:
    known = simulated(planning)
    rows = [Asked(i / 20, (60.0, 250.0)[i % 2], "abc"[i % 3], (None, 0.8)[i // 3 % 2])
            for i in range(600)]  # fmt: skip
    product = load_settings(
        state_dir=tmp_path, objective=planning.objective.value, elastic=planning.elastic
    )
    gateway = Gateway(product, MemoryCatalog(), FileArtifactStore(tmp_path / "artifacts"), b"")
    brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
    compared: list[Compared] = []

    def policy(fleet: Fleet) -> Compared:
        ours = cast(Modelless, make("modelless")(brief, fleet))
        compared.append(Compared(ours, fleet, gateway, known))
        return compared[0]

    _, report = engine_of(known, trace(*rows), policy)
    assert report.in_time > 300
    assert Reason.PLANNED in compared[0].reasons


def test_the_control_loop_expects_what_the_simulated_policy_expects() -> None:
    """After three ticks of ten seconds with rising demand."""
    known = replace(simulated(DEFAULTS), tick_s=10.0, provision_s=50.0)
    brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
    policy = cast(Modelless, make("modelless")(brief, Fleet({}, known.kinds)))
    arrivals = Arrivals(estimator_of(DEFAULTS))
    steps = accuracies_of(known.catalog)[TaskName("a")]
    name = counter_name(TaskName("a"), 100.0, None, steps)
    asked = 0
    for number, count in enumerate((0, 50, 80, 120)):
        for at_s in steady(count, 1).arrival_s:
            policy.choose(Query(TaskName("a"), 1, at_s * 1_000, 100.0), at_s * 1_000)
        asked += count
        policy.tick(10.0 * number)
        report = {"demand": {name: asked}, "tightest": {name: 100.0}}
        arrivals.count({"gateway": report}, known.catalog, 10.0 * number)
    assert arrivals.estimator.expected
    assert policy.estimator.expected == arrivals.estimator.expected
    assert policy.estimator.envelope == arrivals.estimator.envelope
    assert policy.estimator.watched == arrivals.estimator.watched == 0.0
    assert policy.estimator.steady == arrivals.estimator.steady


def test_what_a_plan_loads_is_told_what_it_brings_as_soon_as_its_load_begins() -> None:
    """The product says it with the load (``LoadSpec``), and the simulator in the same moment."""
    known = simulated(DEFAULTS)
    brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
    told: list[tuple[float, float]] = []

    class Told(Watched):
        def begun(self, replica: Replica) -> None:
            super().begun(replica)
            task, variant = replica.key
            target = cast(Modelless, self.policy)._targets[replica.worker.id, task, variant]
            spec = Specs(known.catalog, FileArtifactStore(Path())).of(
                task, variant, replica.worker.kind.name, target=target
            )
            assert (spec.planned_qps, spec.share) == (
                replica.planned_qps, replica.queue.task_share.share,
            )  # fmt: skip
            told.append((replica.planned_qps, replica.queue.task_share.share))

    rows = [Asked(i / 20, 250.0, "abc"[i % 3]) for i in range(400)]
    failing = replace(known, failures_every_s=6.0)
    engine_of(failing, trace(*rows), lambda f: Told(make("modelless")(brief, f), f))
    assert any(qps > 0.0 for qps, _ in told)


class Unplanned(Watched):
    """Has nothing loaded for a plan, so that a query begins the load."""

    weighs_loads = True

    def tick(self, now_s: float) -> Iterable[Action]:
        super().tick(now_s)
        return ()


@pytest.mark.parametrize("rule", ["modelless", pytest.param("gdsf", marks=pytest.mark.campaign)])
async def test_queries_that_find_a_variant_missing_are_counted_alike(
    valkey_url: str, rule: str
) -> None:
    """One that cannot wait, and five that wait for one load: in the simulator, by the gateway that
    chooses hosts, and by the worker that evicts. Each counts, though there is one load."""
    known = replace(setting(Model("a", load_s=1.0)), eviction=rule)
    rows = (Asked(0.1, 100.0), *(Asked(0.2 + i / 100, 5_000.0) for i in range(5)))
    brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
    engine, report = engine_of(
        known, trace(*rows), lambda fleet: Unplanned(make("modelless")(brief, fleet), fleet)
    )
    assert (report.in_time, report.rejected, report.loads) == (5, 1, 1)
    simulated_share = engine.fleet.asked.urgency.share((TaskName("a"), VariantName("v")))

    heavy = "heavy-v1-echo-fp32"
    offered = Known(name=heavy, accuracy=0.9, p95_ms=1.0, load_s=2.0, options={"load_s": "2"})
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        async with serving(Path(folder), valkey_url, known=(offered,)) as served:
            host = await served.worker("w1")
            refused = await served.ask(query(variant=heavy, slo={"latency_ms": 100}))
            assert refused.error[:2] == (503, "COLD")
            answers = await asyncio.gather(
                *(served.ask(query(variant=heavy, slo={"latency_ms": 50_000})) for _ in range(5))
            )
            assert [answer.status for answer in answers] == [200] * 5
            assert host.status().loads == 1
            gateway = served.gateway.path.asked.urgency
            (task,) = served.gateway.known.tasks
            assert gateway.share((task, VariantName(heavy))) == simulated_share

            def worker_share() -> float:
                (replica,) = host.status().replicas
                return replica.urgent

            await until(lambda: worker_share() == round(simulated_share, 2))
    assert simulated_share == pytest.approx((1 + 1 / 6) / 7)
