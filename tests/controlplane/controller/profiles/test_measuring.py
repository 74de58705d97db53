"""Measuring where workers run: on which node, when, and what is made of failures."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from controlplane.backoff import LONGEST_S
from controlplane.controller.events.journal import Journal
from controlplane.controller.profiles.measuring import (
    LOOK_EVERY_S,
    Measuring,
)
from controlplane.profiling.orders import MeasuringOrder
from controlplane.profiling.places import CALM, PATIENCE_S, PAUSE
from controlplane.profiling.profiles import ASKED_FOR
from controlplane.profiling.setbacks import DISTURBED_REST_S, REFUSED_S, REST_S
from controlplane.profiling.staleness import BackEnd
from controlplane.settings import load_settings
from planner.types import Demand, Observation, ProfileKey
from tests.controlplane.fleet import eventually
from tests.variants.catalog_builders import CPU, kind, profile, registration, version
from variants.catalog.memory import MemoryCatalog
from variants.errors import (
    ArtifactDamaged,
    DeadlineExceeded,
    InvalidArtifact,
    InvalidInput,
    ModellessError,
    ReplicaLost,
    StateUnavailable,
    TrialKilled,
    VariantNotLoadable,
)
from variants.types import (
    DeviceKind,
    DeviceKindName,
    Event,
    ModelName,
    Profile,
    ProfilingRequest,
    Stage,
    VariantName,
)
from workers.types import WorkerStatus

HEAD, NODE = "Old; 1 cores; Linux 6.1", "New; 1 cores; Linux 6.1"
CPU_2 = DeviceKindName("cpu-2")
Answer = Callable[[MeasuringOrder], Awaitable[Profile]]


def status(busy_ratio: float, of: str = CPU) -> WorkerStatus:
    return WorkerStatus(
        worker="", device_kind=of, memory_mib=9.0, reserved_mib=1.0, draining=False,
        backlog_us=0, busy_ratio=busy_ratio, replicas=(),
    )  # fmt: skip


async def measured_there(order: MeasuringOrder) -> Profile:
    return profile(
        order.due.variant.name, kind=order.due.kind.name, host=NODE, measured_on="a node (10.0.0.3)"
    )


@dataclass(slots=True)
class Cluster:
    """Nodes by the names of the workers on them, and what came of orders."""

    placed: dict[str, str]
    answer: Answer = measured_there
    one_machine: bool = False
    own_node: str = "n-9"
    """Where a slice of its own is found."""
    beginning: Answer | None = None
    """Called before a process has begun, which it may refuse."""
    orders: list[tuple[str, str]] = field(default_factory=list)
    """Variant and node."""
    given_way: list[tuple[str, bool]] = field(default_factory=list)
    """Variants whose measurement was to give way, or to go on."""
    looks: int = 0
    hanging: int = 0
    """Measurements that go on."""
    going: set[str] = field(default_factory=set)
    """Nodes that are lost, or soon will be."""
    unknown: set[str] = field(default_factory=set)
    """Nodes at which looking fails in a way that nobody expects."""

    async def nodes(
        self, kinds: Iterable[DeviceKindName], workers: Iterable[str]
    ) -> dict[str, str]:
        return {
            worker: node
            for worker, node in self.placed.items()
            if DeviceKindName(worker[:-2]) in kinds
        }

    async def look(self, node: str, back_ends: Iterable[BackEnd]) -> Mapping[BackEnd, str]:
        self.looks += 1
        if node in self.unknown:
            raise RuntimeError("a private part of Ray has changed")
        return dict.fromkeys(back_ends, NODE)

    async def give_way(self, key: ProfileKey, gives: bool) -> bool:
        self.given_way.append((key[1], gives))
        return True

    async def stays(self, node: str) -> bool:
        if node in self.unknown:
            raise RuntimeError("a private part of Ray has changed")
        return node not in self.going

    async def measure(
        self, order: MeasuringOrder, node: str, placed: Callable[[str], None]
    ) -> Profile:
        self.orders.append((order.due.variant.name, node))
        if self.beginning is not None:
            await self.beginning(order)
        placed(node or self.own_node)
        return await self.answer(order)


class House:
    """The measuring of a control loop, with a clock of its own."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *models: str,
        host: str = "",
        slices: str = "",
        catalog: MemoryCatalog | None = None,
    ) -> None:
        self.catalog = catalog or MemoryCatalog()
        for model in models:
            known = profile(f"{model}-v1-onnx-fp32", host=host)
            self.catalog.register(
                registration(
                    model,
                    version=version(model),
                    profiles=(known,) if host else (),
                    device_kinds=(kind(),) if host else (),
                )
            )
        self.cluster = cluster
        self.journal = Journal(self.catalog)
        self.now_s = 0.0
        self.workers = {worker: status(0.0) for worker in cluster.placed}
        self.running = {CPU: len(cluster.placed)}
        self.demand: tuple[Demand, ...] = ()
        settings = load_settings(
            state_dir=folder,
            cores=None if slices else 1,
            worker_memory_mib=100,
            slices=slices or None,
        )
        self.measuring = Measuring(
            lambda: settings, self.catalog, cluster, self.journal, lambda: self.now_s
        )

    def request(self, reason: str, at: str, place: int = 0) -> None:
        """Ask for a variant to be measured, the first unless said otherwise."""
        variant = self.catalog.snapshot().variants[place]
        asked = ProfilingRequest(
            task=variant.task, variant=variant.name, device_kind=CPU, reason=reason, at=at
        )
        self.catalog.request_profiling((asked,), anew=True)

    async def look(self, after_s: float = LOOK_EVERY_S) -> list[tuple[str, str]]:
        """What is ordered by a look after so long."""
        self.now_s += after_s
        before = len(self.cluster.orders)
        known = self.catalog.snapshot()
        observation = Observation(
            catalog=known, workers=(), demand=self.demand, inventory={CPU: 2, CPU_2: 2},
            running=self.running,
            plan=None, now_s=self.now_s,
        )  # fmt: skip
        self.measuring.look(known, observation, self.workers)
        await eventually(lambda: len(asyncio.all_tasks()) - 1 == self.cluster.hanging)
        return self.cluster.orders[before:]

    async def events(self) -> Sequence[Event]:
        await self.journal.store_events()
        return self.catalog.events(limit=100)


class LosingWrites(MemoryCatalog):
    """A catalog that is away for the next writes of profiles."""

    lost = 0

    def put_profiles(
        self, profiles: tuple[Profile, ...], device_kinds: tuple[DeviceKind, ...] = ()
    ) -> None:
        if self.lost:
            self.lost -= 1
            raise StateUnavailable("the database does not answer")
        super().put_profiles(profiles, device_kinds)


def refusing(error: ModellessError) -> Answer:
    async def answer(_: MeasuringOrder) -> Profile:
        raise error

    return answer


def hanging(placed: Mapping[str, str]) -> Cluster:
    """A cluster on which measuring does not end."""
    cluster = Cluster(dict(placed))

    async def answer(_: MeasuringOrder) -> Profile:
        cluster.hanging += 1
        try:
            await asyncio.sleep(3_600)
        finally:
            cluster.hanging -= 1
        raise AssertionError

    cluster.answer = answer
    return cluster


async def test_what_is_missing_is_measured_where_workers_run_one_at_a_time(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1", "cpu-1-b": "n-1"}), tmp_path, "one", "two")

    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    assert await house.look() == [("two-v1-onnx-fp32", "n-1")]
    assert await house.look() == []
    kept = house.catalog.snapshot()
    assert {p.measured_on for p in kept.profiles} == {"a node (10.0.0.3)"}
    assert [one.memory_mib for one in kept.device_kinds] == [100.0]
    assert house.cluster.looks == 1
    assert [(event.kind, event.subject) for event in await house.events()] == [
        ("profile_measured", "digits/two-v1-onnx-fp32"),
        ("profile_measured", "digits/one-v1-onnx-fp32"),
    ]


async def test_queries_that_nothing_measured_answers_do_not_wait_for_calm(tmp_path: Path) -> None:
    """Neither do those of a task of which something was measured, but nothing so quick."""
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "three", "two")
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    house.workers = {"cpu-1-a": status(0.9)}
    task = house.catalog.snapshot().tasks[0].name
    house.demand = (Demand(task=task, latency_ms=500.0, accuracy=None, qps=5.0),)
    assert await house.look() == []

    house.demand += (Demand(task=task, latency_ms=0.5, accuracy=None, qps=5.0),)
    assert await house.look() == [("three-v1-onnx-fp32", "n-1")]
    assert await house.look() == [("two-v1-onnx-fp32", "n-1")]  # three was no quicker


async def test_what_was_removed_since_it_was_found_is_not_measured(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "three", "two")
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    task, model = house.catalog.snapshot().tasks[0].name, ModelName("three")
    house.catalog.set_stage([task], model, 1, Stage.RETIRED)
    house.catalog.remove_version(task, model, 1)

    assert await house.look() == [("two-v1-onnx-fp32", "n-1")]
    assert {event.kind for event in await house.events()} == {"profile_measured"}


async def test_nodes_measure_beside_each_other(tmp_path: Path) -> None:
    cluster = hanging({"cpu-1-a": "n-1", "cpu-1-b": "n-2"})
    house = House(cluster, tmp_path, "one", "two", "three")

    assert sorted(node for _, node in await house.look()) == ["n-1", "n-2"]
    assert await house.look() == []
    await house.measuring.close()


async def test_what_is_measured_gives_way_to_what_hurries_and_goes_on_after_it(
    tmp_path: Path,
) -> None:
    """Queries of a class waited for up to half a minute until something else was measured."""
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "two", "three", host=HEAD)
    ends = {name: asyncio.Event() for name in ("one", "two", "three")}

    async def answer(order: MeasuringOrder) -> Profile:
        house.cluster.hanging += 1
        try:
            await ends[str(order.due.variant.model)].wait()
        finally:
            house.cluster.hanging -= 1
        return await measured_there(order)

    house.cluster.answer = answer
    assert [name for name, _ in await house.look()] == ["one-v1-onnx-fp32"]
    assert await house.look() == []
    names = [variant.name for variant in house.catalog.snapshot().variants]
    house.request(
        ASKED_FOR, "2026-01-01T00:00:00+00:00", names.index(VariantName("two-v1-onnx-fp32"))
    )

    assert await house.look() == [("two-v1-onnx-fp32", "n-1")]
    assert house.cluster.given_way == [("one-v1-onnx-fp32", True)]
    assert await house.look() == []
    ends["two"].set()
    await eventually(lambda: len(house.cluster.given_way) > 1)
    assert house.cluster.given_way[1:] == [("one-v1-onnx-fp32", False)]
    assert await house.look() == []
    ends["one"].set()
    ends["three"].set()
    await eventually(lambda: len(asyncio.all_tasks()) == 1)
    assert await house.look() == [("three-v1-onnx-fp32", "n-1")]
    assert len([e for e in await house.events() if e.kind == "profile_measured"]) == 3


async def test_of_two_that_hurry_alike_none_gives_way(tmp_path: Path) -> None:
    house = House(hanging({"cpu-1-a": "n-1"}), tmp_path, "one", "two", host=HEAD)
    for place in (0, 1):
        house.request(ASKED_FOR, "2026-01-01T00:00:00+00:00", place)
    assert len(await house.look()) == 1
    assert await house.look() == []
    assert house.cluster.given_way == []
    await house.measuring.close()


async def test_a_profile_of_another_machine_waits_for_a_calm_node(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1", "cpu-1-b": "n-2"}), tmp_path, "one", host=HEAD)
    house.workers = {"cpu-1-a": status(0.9), "cpu-1-b": status(0.7)}

    assert await house.look() == []
    assert await house.look(PATIENCE_S + 1) == [("one-v1-onnx-fp32", "n-2")]
    assert await house.look() == []


async def test_only_what_a_task_cannot_be_answered_without_is_measured_on_a_busy_node(
    tmp_path: Path,
) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "two", "three")
    house.workers = {"cpu-1-a": status(0.9)}

    async def taking_30_s(order: MeasuringOrder) -> Profile:
        house.now_s += 30.0
        return await measured_there(order)

    house.cluster.answer = taking_30_s
    [first] = await house.look()
    assert first == ("one-v1-onnx-fp32", "n-1")
    assert await house.look() == []  # the task can be answered
    [_] = await house.look(PATIENCE_S + 1)
    assert await house.look(PAUSE * 30.0 - 10.0) == []
    [_] = await house.look(10.0)


async def test_an_operator_does_not_wait_for_calm(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", host=NODE)
    house.workers = {"cpu-1-a": status(0.9)}

    house.request("its latency is doubted", at="2026-11-20T08:00:00Z")
    assert await house.look() == []
    house.request(f"{ASKED_FOR}8 o'clock", at="2026-11-20T09:00:00Z")
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]


async def test_a_calm_node_needs_no_pauses(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "two", "three")
    house.workers = {"cpu-1-a": status(CALM / 2)}

    assert [len(await house.look()) for _ in range(4)] == [1, 1, 1, 0]


async def test_a_profile_that_a_machine_of_the_kind_gave_is_true(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", host=NODE)

    assert await house.look() == []


async def test_what_is_lost_is_told_once_and_tried_again(tmp_path: Path) -> None:
    lost = refusing(ReplicaLost("measuring one: the node was lost"))
    house = House(Cluster({"cpu-1-a": "n-1"}, lost), tmp_path, "one")

    assert len(await house.look()) == 1
    assert len(await house.look()) == 1
    [event] = await house.events()
    assert event.kind == "measuring_failed"
    assert event.message == "on cpu-1: REPLICA_LOST: measuring one: the node was lost"
    house.cluster.answer = measured_there
    house.cluster.placed = {"cpu-1-c": "n-2"}
    house.workers = {"cpu-1-c": status(0.0)}

    assert await house.look() == [("one-v1-onnx-fp32", "n-2")]
    assert len(house.catalog.snapshot().profiles) == 1


@pytest.mark.parametrize(
    "error",
    [
        TrialKilled("one: its trial process was killed; whether memory ran out is not known"),
        ReplicaLost("measuring one: the node or the process there was lost"),
    ],
)
@pytest.mark.parametrize("own_slice", [False, True])
async def test_what_ends_with_its_node_says_nothing_of_the_variant(
    tmp_path: Path, error: ModellessError, own_slice: bool
) -> None:
    cluster = Cluster({} if own_slice else {"cpu-1-a": "n-1"}, refusing(error), own_node="n-1")
    cluster.going = {"n-1"}
    slices = "cpu-1" if own_slice else ""
    house = House(cluster, tmp_path, "one", "two", slices=slices)

    assert len(await house.look()) == 1
    [event] = await house.events()
    gone = "measuring one-v1-onnx-fp32 on cpu-1: its node went meanwhile"
    assert (event.kind, event.message) == ("measuring_failed", f"on cpu-1: REPLICA_LOST: {gone}")
    cluster.answer = measured_there
    cluster.own_node = "n-2"
    if not own_slice:
        cluster.placed = {"cpu-1-c": "n-2"}
        house.workers = {"cpu-1-c": status(0.0)}
    # At once, and before what has not been tried yet.
    [(variant, _)] = await house.look()
    assert variant == "one-v1-onnx-fp32"


@pytest.mark.parametrize("own_slice", [False, True])
async def test_what_is_lost_waits_longer_and_longer_where_nobody_can_say_whether_its_node_stays(
    tmp_path: Path, own_slice: bool
) -> None:
    lost = refusing(ReplicaLost("measuring one: the node or the process there was lost"))
    cluster = Cluster({} if own_slice else {"cpu-1-a": "n-1"}, lost, own_node="n-1")
    house = House(cluster, tmp_path, "one", slices="cpu-1" if own_slice else "")
    await house.look()
    cluster.unknown = {"n-1"}
    tries = [len(await house.look()) for _ in range(24)]  # two minutes
    assert 3 <= sum(tries) <= 6
    assert tries[-8:].count(1) <= 1


async def test_a_node_that_cannot_be_looked_at_holds_up_no_other_and_waits(tmp_path: Path) -> None:
    cluster = Cluster({"cpu-1-a": "n-1", "cpu-1-b": "n-2"}, unknown={"n-1"})
    house = House(cluster, tmp_path, "one")
    assert await house.look() == [("one-v1-onnx-fp32", "n-2")]
    for _ in range(10):
        await house.look()
    assert cluster.looks < 9  # eleven at the one, and one at the other


async def test_what_is_killed_on_a_node_that_stays_is_left_alone(tmp_path: Path) -> None:
    killed = refusing(TrialKilled("one: its trial process was killed"))
    house = House(Cluster({"cpu-1-a": "n-1"}, killed), tmp_path, "one")

    assert len(await house.look()) == 1
    assert await house.look(REFUSED_S / 2) == []


async def test_what_is_refused_is_left_alone_until_it_is_asked_for(tmp_path: Path) -> None:
    refused = refusing(InvalidArtifact("one-v1-onnx-fp32: it crashed its trial process (SIGSEGV)"))
    house = House(Cluster({"cpu-1-a": "n-1"}, refused), tmp_path, "one")

    assert len(await house.look()) == 1
    (key,) = house.measuring.refusals
    assert key[1:] == ("one-v1-onnx-fp32", CPU)
    assert house.measuring.refusals[key] == "it crashed its trial process (SIGSEGV)"
    assert await house.look(REFUSED_S / 2) == []
    for at in ("noon", "one o'clock"):
        house.request(f"was asked for at {at}", at)
        assert len(await house.look()) == 1
        assert await house.look(REFUSED_S / 2) == []
        assert len(house.measuring.refusals) == 1
    house.cluster.answer = measured_there
    house.request("was asked for at two o'clock", "two o'clock")
    assert len(await house.look()) == 1
    assert house.measuring.refusals == {}


async def test_what_was_measured_rests_twice_as_long_each_time_but_for_operators(
    tmp_path: Path,
) -> None:
    """Each drift has numbers of its own: they are no other reason."""
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", host=NODE)
    for ratio, rest_s in ((1.7, 0.0), (1.8, REST_S), (1.6, 2 * REST_S)):
        house.request(f"runs {ratio} times as long as its profile says, for 61 s", f"{ratio}")
        if rest_s:
            assert await house.look(rest_s - 2 * LOOK_EVERY_S) == []
            assert await house.look() == []
        assert len(await house.look()) == 1
    house.request("runs 1.9 times as long as its profile says, for 62 s", "later")
    assert await house.look(2 * REST_S) == []
    house.request("was asked for at noon", "noon")
    assert len(await house.look()) == 1


async def test_an_artifact_that_cannot_be_fetched_now_is_tried_again_soon(tmp_path: Path) -> None:
    away = refusing(VariantNotLoadable("its artifact cannot be read: no space left"))
    house = House(Cluster({"cpu-1-a": "n-1"}, away), tmp_path, "one")

    assert len(await house.look()) == 1
    assert len(await house.look()) == 1
    house.cluster.answer = refusing(ArtifactDamaged("its artifact is missing"))
    assert len(await house.look()) == 1
    assert await house.look(REFUSED_S / 2) == []


async def test_a_node_with_a_wrong_setting_waits_and_not_the_variant(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "two")
    house.cluster.beginning = refusing(InvalidInput("node n-1: MODELLESS_REDIS_URL is no URL"))

    assert len(await house.look()) == 1
    [event] = await house.events()
    assert event.message == "on cpu-1: INVALID_INPUT: node n-1: MODELLESS_REDIS_URL is no URL"
    house.cluster.placed = {"cpu-1-a": "n-1", "cpu-1-b": "n-2"}
    house.workers = {"cpu-1-a": status(0.0), "cpu-1-b": status(0.5)}
    assert len(await house.look()) == 2
    house.cluster.beginning = None
    assert len(await house.look(LONGEST_S)) == 2
    assert len(house.catalog.snapshot().profiles) == 2


async def test_what_was_measured_is_kept_when_the_catalog_is_back(tmp_path: Path) -> None:
    away = LosingWrites()
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", catalog=away)
    away.lost = 2
    assert len(await house.look()) == 1
    assert await house.look() == []
    assert away.snapshot().profiles == ()
    assert await house.look() == []
    assert len(away.snapshot().profiles) == 1
    assert await house.look() == []


async def test_a_kind_without_room_holds_up_no_other(tmp_path: Path) -> None:
    """A try takes five minutes, and only one slice of its own is looked for at a time."""
    slices = "0-1xcpu-1,0-1xcpu-2"
    house = House(Cluster({}), tmp_path, "one", "two", "three", slices=slices)
    house.running = {CPU: 0, CPU_2: 0}

    async def no_room(order: MeasuringOrder) -> Profile:
        if order.due.kind.name == CPU:
            house.now_s += 300.0
            raise DeadlineExceeded(f"no room for {order.due.variant.name}")
        return await measured_there(order)

    house.cluster.beginning = no_room
    for _ in range(4):
        assert len(await house.look()) == 1
    measured = {(one.variant, one.device_kind) for one in house.catalog.snapshot().profiles}
    names = ("one-v1-onnx-fp32", "two-v1-onnx-fp32", "three-v1-onnx-fp32")
    assert measured == {(name, "cpu-2") for name in names}
    assert await house.look() == []
    assert len(await house.look(300.0)) == 1
    assert [event.kind for event in await house.events()].count("measuring_failed") == 1


async def test_one_machine_leaves_to_checks_what_was_measured_beside_other_work(
    tmp_path: Path,
) -> None:
    cluster = Cluster({"cpu-1-a": "n-1"}, one_machine=True)
    house = House(cluster, tmp_path, "one", host=NODE)
    disturbed = replace(house.catalog.snapshot().profiles[0], beside_load=True)
    house.catalog.put_profiles((disturbed,))

    assert await house.look() == []
    house.request("3 lone batches took 0.1 ms each, its profile says 1 ms", "noon")
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]


async def test_one_machine_measures_all_its_kinds_where_any_worker_runs(tmp_path: Path) -> None:
    """One after the other without a pause, and nothing on a GPU."""
    cluster = Cluster({"cpu-1-a": "n-1"}, one_machine=True)
    house = House(cluster, tmp_path, "one", "two", slices="0-1xcpu-1,0-1xcpu-2")
    house.running = {CPU: 1, CPU_2: 0}

    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    assert await house.look(0.0) == [("one-v1-onnx-fp32", "n-1")]
    assert await house.look(0.0) == [("two-v1-onnx-fp32", "n-1")]
    assert await house.look(0.0) == [("two-v1-onnx-fp32", "n-1")]
    measured = {(one.variant, one.device_kind) for one in house.catalog.snapshot().profiles}
    assert {kind for _, kind in measured} == {CPU, CPU_2}
    assert len(measured) == 4


async def test_a_disturbed_measurement_is_repeated_when_it_is_calm(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", host=NODE)
    disturbed = replace(house.catalog.snapshot().profiles[0], beside_load=True)
    house.catalog.put_profiles((disturbed,))
    house.workers = {"cpu-1-a": status(0.9)}

    assert await house.look() == []
    assert await house.look(2 * PATIENCE_S) == []
    house.workers = {"cpu-1-a": status(0.1)}

    async def disturbed_again(order: MeasuringOrder) -> Profile:
        return replace(await measured_there(order), beside_load=True)

    house.cluster.answer = disturbed_again
    assert len(await house.look()) == 1
    assert await house.look(DISTURBED_REST_S / 2) == []
    house.cluster.answer = measured_there
    assert len(await house.look(DISTURBED_REST_S)) == 1
    assert not house.catalog.snapshot().profiles[0].beside_load


async def test_a_kind_without_workers_is_measured_on_a_slice_until_they_are_wanted(
    tmp_path: Path,
) -> None:
    house = House(hanging({}), tmp_path, "one", "two")
    house.running = {CPU: 0}

    assert await house.look() == [("one-v1-onnx-fp32", "")]
    assert await house.look() == []
    house.running = {CPU: 1}
    assert await house.look() == []
    house.cluster.placed = {"cpu-1-a": "n-1"}
    house.workers = {"cpu-1-a": status(0.0)}
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    await house.measuring.close()
