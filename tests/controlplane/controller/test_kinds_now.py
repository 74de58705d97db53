"""Kinds that follow the nodes: what Serve is told, and what the control loop goes by then."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from controlplane.cluster.kind_applications import Deployed
from controlplane.cluster.kinds.node import Node
from controlplane.controller.events.journal import Journal
from controlplane.controller.nodes.kinds_now import PATIENCE, SELDOM, KindsNow
from controlplane.settings import load_settings
from controlplane.slices import MOST_KINDS, Kind, Slice, Source
from tests.controlplane.cluster.kinds.test_found_kinds import node
from variants.catalog.memory import MemoryCatalog
from variants.errors import ClusterUnavailable
from variants.types import DeviceKindName

CPU_4, CPU_8 = DeviceKindName("cpu-4"), DeviceKindName("cpu-8")
A, B, LARGE = node("a"), node("b"), node("large", 8)
FOUND = "cpu-4:memory_mib=100:source=found"


@dataclass
class Serve:
    """Serve, with the workers of the start."""

    starts: bool = True
    """Whether workers have their nodes at once."""
    there: dict[DeviceKindName, Deployed] = field(
        default_factory=lambda: {
            CPU_4: Deployed(slice=None, target=1, nodes=frozenset({"id-a"}), placed=1)
        }
    )
    deploys: list[tuple[str, int, float]] = field(default_factory=list)
    away: bool = False

    questions: int = 0

    @property
    def targets(self) -> dict[DeviceKindName, int]:
        return {name: each.target for name, each in self.there.items()}

    async def deployed(self) -> dict[DeviceKindName, Deployed]:
        self.questions += 1
        return dict(self.there)

    async def deploy(self, kind: Kind, one: Slice, replicas: int) -> None:
        if self.away:
            raise ClusterUnavailable("Ray Serve does not answer")
        self.deploys.append((kind.name, replicas, kind.memory_mib))
        self.there[kind.name] = Deployed(
            slice=one, target=replicas, nodes=frozenset(), placed=replicas * self.starts
        )

    async def remove(self, kind: DeviceKindName) -> None:
        del self.there[kind]


class House:
    """The kinds of an installation on a cluster, and its Serve."""

    def __init__(
        self,
        folder: Path,
        serve: Serve | None = None,
        slices: str = FOUND,
        elastic: bool = False,
    ) -> None:
        self.serve = serve or Serve()
        self.catalog = MemoryCatalog()
        self.journal = Journal(self.catalog)
        settings = load_settings(
            state_dir=folder, ray_address="auto", slices=slices, elastic=elastic
        )
        self.kinds = KindsNow(settings, self.serve, self.journal)

    async def look(self, *nodes: Node, asked: dict[DeviceKindName, int] | None = None) -> None:
        await self.kinds.follow(nodes, asked or {}, self.serve.targets)

    @property
    def counts(self) -> dict[DeviceKindName, int]:
        return self.kinds.settings.wanted({})

    async def told(self) -> list[str]:
        await self.journal.store_events()
        return [f"{one.subject}: {one.message}" for one in reversed(self.catalog.events(9))]


async def test_a_new_kind_is_deployed_and_ends_with_its_nodes(tmp_path: Path) -> None:
    house = House(tmp_path)

    await house.look(A, LARGE)
    assert house.serve.deploys == [("cpu-8", 1, 4_000.0)]
    assert house.counts == {CPU_4: 1, CPU_8: 1}
    await house.look(A, LARGE)
    assert len(house.serve.deploys) == 1

    await house.look(A)
    assert house.counts == {CPU_4: 1}
    await house.look(A)
    assert set(house.serve.there) == {CPU_4}
    await house.look(A)
    assert await house.told() == [
        "cpu-8: nodes have joined: 1 worker of this kind",
        "cpu-8: its nodes have room for 0 workers now",
        "cpu-8: all of its nodes have left, and its workers end",
    ]


async def test_a_node_on_which_a_waiting_worker_starts_is_no_new_kind(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.serve.there[CPU_4] = Deployed(slice=None, target=1, nodes=frozenset(), placed=0)

    await house.look(LARGE)  # Ray has not said yet that it starts there
    starts = Deployed(slice=None, target=1, nodes=frozenset({"id-large"}), placed=1)
    house.serve.there[CPU_4] = starts
    await house.look(LARGE)

    assert (house.serve.deploys, house.counts) == ([], {CPU_4: 2})


async def test_a_node_waits_no_longer_for_a_worker_that_does_not_come(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.serve.there[CPU_4] = Deployed(slice=None, target=1, nodes=frozenset(), placed=0)

    for _ in range(PATIENCE):
        await house.look(LARGE)
    assert house.serve.deploys == []
    await house.look(LARGE)

    assert [name for name, *_ in house.serve.deploys] == ["cpu-8"]


async def test_one_more_node_of_a_kind_is_one_more_worker_without_a_deployment(
    tmp_path: Path,
) -> None:
    house = House(tmp_path)

    await house.look(A, B)

    assert (house.counts, house.serve.deploys) == ({CPU_4: 2}, [])
    await house.look(B)
    assert house.counts == {CPU_4: 1}


async def test_more_workers_that_may_run_anywhere_wait_until_a_new_kind_has_its_nodes(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, Serve(starts=False))

    for _ in range(2):
        await house.look(A, B, LARGE)
        assert house.counts == {CPU_4: 1, CPU_8: 1}
    cpu_8 = house.serve.there[CPU_8]
    house.serve.there[CPU_8] = replace(cpu_8, nodes=frozenset({"id-large"}), placed=1)
    await house.look(A, B, LARGE)

    assert house.counts == {CPU_4: 2, CPU_8: 1}


async def test_workers_are_deployed_anew_only_to_be_bound_to_one_more_node(tmp_path: Path) -> None:
    house = House(tmp_path, slices=f"{FOUND}:nodes=ray.io/node-id=id-a")

    await house.look(A, LARGE)
    assert [name for name, *_ in house.serve.deploys] == ["cpu-8"]
    await house.look(A, LARGE, B)
    await house.look(A, LARGE, B)

    assert house.serve.deploys[1:] == [("cpu-4", 2, 100.0)]
    assert house.counts == {CPU_4: 2, CPU_8: 1}


@pytest.mark.parametrize(
    ("elastic", "asked", "started"),
    [
        (False, {}, [("cpu-4", 5)]),
        (False, {CPU_4: 2}, [("cpu-4", 2)]),
        (True, {}, [("cpu-4", 1)]),  # the plan has one, and goes on from there
        (True, {CPU_4: 2}, [("cpu-4", 1)]),
    ],
)
async def test_as_many_are_started_anew_as_there_shall_be(
    tmp_path: Path, elastic: bool, asked: dict[DeviceKindName, int], started: list[tuple[str, int]]
) -> None:
    bound = f"4x{FOUND}:nodes=ray.io/node-id=id-a"
    house = House(tmp_path, slices=bound, elastic=elastic)
    cpu_8 = Slice(name="cpu-8", cores=8, most=1, source=Source.FOUND)
    house.serve.there[CPU_8] = Deployed(slice=cpu_8, target=1, nodes=frozenset(), placed=1)

    await house.look(*(node(name) for name in "abcde"), LARGE, asked=asked)

    assert [(name, count) for name, count, _ in house.serve.deploys] == started


async def test_none_are_started_anew_of_a_kind_that_is_to_have_none(tmp_path: Path) -> None:
    house = House(tmp_path, slices=f"{FOUND}:nodes=ray.io/node-id=id-a")
    await house.look(A, LARGE)
    house.serve.there[CPU_4] = Deployed(slice=None, target=0, nodes=frozenset(), placed=0)

    for _ in range(2):
        await house.look(A, LARGE, B, asked={CPU_4: 0})
    assert [name for name, *_ in house.serve.deploys] == ["cpu-8"]
    house.serve.there[CPU_4] = Deployed(slice=None, target=2, nodes=frozenset(), placed=0)
    await house.look(A, LARGE, B)

    assert house.serve.deploys[1:] == [("cpu-4", 2, 100.0)]


async def test_a_control_loop_that_takes_over_knows_what_the_one_before_has_added(
    tmp_path: Path,
) -> None:
    before = House(tmp_path)
    for _ in range(2):
        await before.look(A, B, LARGE)
    before.serve.there[CPU_4] = Deployed(
        slice=None, target=2, nodes=frozenset({"id-a", "id-b"}), placed=2
    )

    after = House(tmp_path, before.serve)
    await after.kinds.recall()

    assert after.counts == before.counts == {CPU_4: 2, CPU_8: 1}
    assert after.kinds.settings.kinds == before.kinds.settings.kinds


async def test_more_kinds_than_there_may_be_are_told_and_hold_up_nothing(tmp_path: Path) -> None:
    house = House(tmp_path)
    for number in range(MOST_KINDS):
        one = Slice(name=f"cpu-1-{number}", cores=1, most=1, source=Source.FOUND)
        house.serve.there[DeviceKindName(one.name)] = Deployed(
            slice=one, target=1, nodes=frozenset(), placed=1
        )

    await house.kinds.recall()

    assert len(house.counts) == MOST_KINDS
    assert await house.told() == ["cpu-1-31: it is one kind more than the 32 there may be"]


async def test_what_an_application_says_wrongly_of_its_kind_is_told_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.serve.there[CPU_8] = Deployed(
        slice=None, target=1, nodes=frozenset({"id-large"}), placed=1, wrong="unreadable"
    )

    for _ in range(2):
        await house.look(A, LARGE)

    assert (house.counts, house.serve.deploys) == ({CPU_4: 1, CPU_8: 1}, [])
    assert await house.told() == ["cpu-8: unreadable"]


async def test_without_kinds_of_the_start_all_are_those_of_the_nodes(tmp_path: Path) -> None:
    house = House(tmp_path, Serve(there={}), slices="found")

    assert house.counts == {}
    await house.look(A, B)
    assert (house.counts, house.serve.deploys) == ({CPU_4: 2}, [("cpu-4", 2, 4_000.0)])
    for _ in range(2):
        await house.look()
    assert (house.counts, house.serve.there) == ({}, {})


async def test_what_an_operator_asked_for_stays(tmp_path: Path) -> None:
    house = House(tmp_path)

    for _ in range(2):
        await house.look(A, B, LARGE, asked={CPU_8: 0})
    assert (house.serve.deploys, house.counts) == ([], {CPU_4: 2})
    await house.look(A, LARGE, asked={CPU_8: 3})
    assert house.serve.deploys == [("cpu-8", 3, 4_000.0)]
    for _ in range(2):
        await house.look(A, asked={CPU_8: 3})
    assert CPU_8 in house.serve.there


async def test_serve_is_asked_where_something_has_changed_and_now_and_then(
    tmp_path: Path,
) -> None:
    house = House(tmp_path)

    async def questions(looks: int, *nodes: Node) -> int:
        before = house.serve.questions
        for _ in range(looks):
            await house.look(*nodes)
        return house.serve.questions - before

    assert await questions(5, A) == 2  # one of them: which kinds there are
    assert await questions(3, A, B) == 2  # a worker more, of which the second question tells
    house.serve.there[CPU_4] = replace(house.serve.there[CPU_4], target=2)
    assert await questions(1, A, B) == 1
    assert await questions(SELDOM, A, B) == 1


async def test_a_deployment_that_fails_is_tried_again_by_the_next_look(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.serve.away = True

    with pytest.raises(ClusterUnavailable):
        await house.look(A, LARGE)
    assert house.counts == {CPU_4: 1}
    house.serve.away = False
    await house.look(A, LARGE)

    assert house.counts == {CPU_4: 1, CPU_8: 1}


@pytest.mark.parametrize("slices", ["2xcpu-4", "cpu-4:memory_mib=100:source=numbered"])
async def test_what_settings_say_stays(tmp_path: Path, slices: str) -> None:
    house = House(tmp_path, slices=slices)
    before = house.kinds.settings

    await house.look(A, LARGE)

    assert house.serve.deploys == []
    assert house.kinds.settings is before
