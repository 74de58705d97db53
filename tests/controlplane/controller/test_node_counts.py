"""Node counts: what is asked for and told, and what becomes of workers on nodes that drain."""

import asyncio
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from controlplane.cluster.autoscaling.node_requests import Bundle
from controlplane.cluster.autoscaling.node_types import Autoscaler, NodeType
from controlplane.cluster.autoscaling.ray_autoscaler import ClusterNode
from controlplane.controller.events.journal import Journal
from controlplane.controller.nodes.node_counts import NodeCounts
from controlplane.live_state import LiveState
from controlplane.settings import load_settings
from tests.controlplane.fleet import eventually
from variants.catalog.memory import MemoryCatalog
from variants.errors import ClusterUnavailable, StateUnavailable
from variants.types import DeviceKindName
from workers.types import WorkerStatus

CPU_2 = DeviceKindName("cpu-2")
TYPES = (NodeType(name="small", least=0, most=3, cores=2),)

GOES = b'{"node": "b", "why": "a spot machine\'s notice", "until_s": 1030}'


def node(id_: str) -> ClusterNode:
    return ClusterNode(id=id_, host=f"n{id_}", address="10.0.0.1", cores=2)


class Ray:
    def __init__(self, autoscaler: Autoscaler | None = None) -> None:
        self.autoscaler = autoscaler
        self.there = [node("a"), node("b")]
        self.ended = {"b": "it had drained"}
        self.on = {"w1": "a", "w2": "b"}
        self.asked: list[Sequence[Bundle]] = []
        self.drained: list[tuple[str, str, float]] = []
        self.away = False
        self.answers = True
        self.looked_for: list[str] = []

    async def find(self) -> Autoscaler | None:
        return self.autoscaler

    async def ask(self, bundles: Sequence[Bundle]) -> None:
        self.asked.append(bundles)
        if not self.answers:
            raise ClusterUnavailable("it did it, and its answer was lost")

    async def nodes(self) -> tuple[ClusterNode, ...]:
        if self.away:
            raise ClusterUnavailable("Ray does not answer")
        return tuple(self.there)

    async def ends(self, ids: Container[str]) -> dict[str, str]:
        return {id_: how for id_, how in self.ended.items() if id_ in ids}

    async def workers(self, kinds: Iterable[str]) -> dict[str, str]:
        self.looked_for = list(kinds)
        return self.on

    async def drain(self, node: str, why: str, until_s: float) -> str:
        self.drained.append((node, why, until_s))
        [index] = [n for n, one in enumerate(self.there) if one.id == node]
        self.there[index] = replace(self.there[index], drains_until_s=until_s)
        return ""


class Live:
    def __init__(self) -> None:
        self.seen: Any = None
        self.waiting: list[bytes] = []
        self.away = False
        self.asked = False

    async def put_machines(self, seen: Any) -> None:
        self.seen = seen

    async def put_asked_for_nodes(self, *, asked: bool) -> None:
        self.asked = asked

    async def asked_for_nodes(self) -> bool:
        return self.asked

    async def notices(self) -> list[bytes]:
        return list(self.waiting)

    async def noticed(self, written: bytes) -> None:
        if self.away:
            raise StateUnavailable("it is away")
        self.waiting.remove(written)


class Case:
    """A cluster of two nodes with a worker each, of up to three."""

    def __init__(
        self, folder: Path, autoscaler: Autoscaler | None, slices: str = "1-3xcpu-2"
    ) -> None:
        self.ray, self.live = Ray(autoscaler), Live()
        self.catalog = MemoryCatalog()
        self.journal = Journal(self.catalog)
        self.settings = load_settings(state_dir=folder, ray_address="auto", slices=slices)
        live = cast(LiveState, self.live)
        self.counts = NodeCounts(
            self.ray, live, self.journal, lambda: self.settings, lambda: 1_000.0
        )
        self.now_s = 0.0
        self.usual_s: dict[DeviceKindName, float] = {}

    async def look(self, wanted: int, workers: Sequence[str], why: str = "") -> None:
        self.now_s += 10.0
        here = {one: status(one) for one in workers}
        reasons = {"cpu-2": why} if why else {}
        self.counts.follow({CPU_2: wanted}, here, reasons, self.usual_s, self.now_s)
        assert self.counts._looking.is_under_way
        await eventually(lambda: not self.counts._looking.is_under_way)

    def counted(self) -> list[list[int]]:
        """How many workers of each kind were asked for, each time."""
        return [[one.count for one in each] for each in self.ray.asked]

    async def told(self) -> list[tuple[str, str, str]]:
        await self.journal.store_events()
        return [(one.kind, one.subject, one.message) for one in reversed(self.catalog.events(99))]


def status(worker: str) -> WorkerStatus:
    return WorkerStatus(
        worker=worker, device_kind=CPU_2, memory_mib=1.0, reserved_mib=0.0, draining=False,
        backlog_us=0, busy_ratio=0.0, replicas=(),
    )  # fmt: skip


def small() -> Autoscaler:
    return Autoscaler(types=TYPES, idle_s=60.0)


async def test_a_node_is_asked_for_until_its_worker_runs(tmp_path: Path) -> None:
    case = Case(tmp_path, small())

    await case.look(2, ["w1", "w2"])
    await case.look(3, ["w1", "w2"], "3 instead of 2: more is expected than these can serve")
    await case.look(3, ["w1", "w2"])
    await case.look(3, ["w1", "w2", "w3"])

    assert [[one.count for one in each] for each in case.ray.asked] == [[3], []]
    assert await case.told() == [
        (
            "nodes_asked", "cpu-2",
            "3 workers are wanted and 2 there: 3 instead of 2: more is expected than these can "
            "serve; the autoscaler is asked for nodes with room for them",
        ),
        ("nodes_asked_no_more", "cpu-2", "all workers run, 20 s later"),
    ]  # fmt: skip


async def test_a_loop_that_stops_asks_for_nothing_more(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    await case.look(3, ["w1", "w2"])
    await case.counts.withdraw()
    await case.counts.withdraw()
    assert (case.counted(), case.live.asked) == ([[3], []], False)


async def test_one_that_leads_no_more_leaves_its_successors_request(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    await case.look(3, ["w1", "w2"])
    await case.counts.close()
    assert (case.counted(), case.live.asked) == ([[3]], True)


async def test_what_may_have_been_asked_for_without_an_answer_is_withdrawn(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    case.ray.answers = False
    await case.look(3, ["w1", "w2"])
    await case.counts.withdraw()
    case.ray.answers = True
    await case.look(2, ["w1", "w2"])
    assert case.counted() == [[3], [], []]
    await case.counts.withdraw()
    assert case.counted() == [[3], [], []]


async def test_that_nothing_is_asked_for_is_said_twice(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    await case.look(3, ["w1", "w2"])
    for _ in range(10):
        await case.look(2, ["w1", "w2"])
    assert (case.counted(), case.live.asked) == ([[3], [], []], False)


async def test_what_an_earlier_loop_asked_for_is_withdrawn_and_what_others_did_is_not(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, small())
    await case.look(2, ["w1", "w2"])
    await case.counts.withdraw()
    assert case.counted() == []

    left = Case(tmp_path, small())
    left.live.asked = True
    await left.look(2, ["w1", "w2"])
    assert left.counted() == [[]]


async def test_of_kinds_that_were_found_no_more_than_at_the_start_are_asked_for(
    tmp_path: Path,
) -> None:
    """Each node that joined would have been a reason for one more."""
    case = Case(tmp_path, small(), "1xcpu-2:source=found,1xcpu-1")
    case.settings = case.settings.with_slices("3xcpu-2:source=found,2xcpu-8:source=found,4xcpu-1")
    plan = {CPU_2: 3, DeviceKindName("cpu-8"): 2, DeviceKindName("cpu-1"): 4}

    assert case.counts.within(plan, {}) == {"cpu-2": 1, "cpu-8": 0, "cpu-1": 4}
    assert case.counts.within(plan, {CPU_2: 2}) == {"cpu-2": 2, "cpu-8": 0, "cpu-1": 4}


async def test_what_does_not_come_is_asked_for_for_ten_minutes(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    for _ in range(62):
        await case.look(3, ["w1", "w2"])
    assert case.counted()[-2:] == [[3], []]
    assert case.live.seen["missing"] == {"cpu-2": 1}
    assert "missing for long" in case.live.seen["remarks"][0]

    await case.look(3, ["w1"])
    await case.look(3, ["w1"])
    assert case.counted()[-1] == [3]


async def test_how_long_a_machine_took_is_told(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    case.usual_s[CPU_2] = 74.2
    await case.look(3, ["w1", "w2"])
    [(_, _, message)] = await case.told()
    assert message.endswith("nodes with room for them, which took 74 s lately")


async def test_what_is_wanted_no_more_is_asked_for_no_more(tmp_path: Path) -> None:
    case = Case(tmp_path, small())

    await case.look(3, ["w1", "w2"])
    await case.look(2, ["w1", "w2"])

    assert [[one.count for one in each] for each in case.ray.asked] == [[3], []]
    assert (await case.told())[-1][2] == "they are wanted no more"


async def test_it_is_asked_again_because_ray_may_have_forgotten(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    for _ in range(7):
        await case.look(3, ["w1", "w2"])
    assert len(case.ray.asked) == 3


async def test_nothing_is_asked_where_there_is_no_autoscaler(tmp_path: Path) -> None:
    case = Case(tmp_path, None)
    await case.look(3, ["w1"])
    assert case.ray.asked == []
    assert case.live.seen["autoscaler"] == "no autoscaler: nodes come and go by hand"


async def test_workers_of_a_node_that_drains_are_planned_for_no_more(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    await case.look(2, ["w1", "w2"])
    case.live.waiting = [GOES]

    await case.look(2, ["w1", "w2"])

    assert case.ray.drained == [("b", "a spot machine's notice", 1_030.0)]
    assert case.live.waiting == []
    planned = case.counts.staying([status("w1"), status("w2")])
    assert [one.draining for one in planned] == [False, True]
    assert [one.count for one in case.ray.asked[-1]] == [2]
    [goes, _] = await case.told()
    assert goes == (
        "node_draining", "nb (10.0.0.1, b)",
        "it goes in 30 s; its workers are planned for no more: w2",
    )  # fmt: skip

    case.ray.there.pop()
    await case.look(2, ["w1"])
    assert (await case.told())[-1] == ("node_left", "nb (10.0.0.1, b)", "it had drained")


async def test_a_worker_of_such_a_node_that_serve_ends_is_on_its_way_out_to_its_end(
    tmp_path: Path,
) -> None:
    """Serve lists a replica no more that it has told to end, and that serves for a moment yet."""
    case = Case(tmp_path, small())
    await case.look(2, ["w1", "w2"])
    case.live.waiting = [GOES]
    await case.look(2, ["w1", "w2"])

    def leaving() -> list[bool]:
        return [one.draining for one in case.counts.staying([status("w1"), status("w2")])]

    case.ray.on = {"w1": "a"}
    await case.look(2, ["w1", "w2"])
    assert leaving() == [False, True]
    case.ray.there.pop()
    await case.look(2, ["w1", "w2"])
    assert leaving() == [False, True]
    await case.look(2, ["w1"])
    assert leaving() == [False, False]


@pytest.mark.parametrize(
    "none", [b'{"why": "no node"}', b"[]", b"no JSON", b'{"node": "b", "why": "", "until_s": "x"}']
)
async def test_what_is_no_notice_is_told_once_and_holds_up_nothing(
    tmp_path: Path, none: bytes
) -> None:
    case = Case(tmp_path, small())
    case.live.waiting = [none, GOES]
    case.live.away = True  # it cannot be taken away
    for _ in range(2):
        await case.look(2, ["w1", "w2"])
    told = [message for _, _, message in await case.told() if "notice of a node" in message]
    assert told == [f"a notice of a node cannot be read: {none.decode()}"]
    assert case.ray.drained == [("b", "a spot machine's notice", 1_030.0)]
    case.live.away = False
    await case.look(2, ["w1", "w2"])
    assert case.live.waiting == []


async def test_a_notice_that_ray_fails_on_holds_up_nothing_and_is_tried_again(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, small())
    unknown = b'{"node": "unknown", "why": "", "until_s": 0}'
    case.live.waiting = [unknown, GOES]
    for _ in range(2):
        await case.look(2, ["w1", "w2"])
    assert [node for node, _, _ in case.ray.drained] == ["unknown", "b", "unknown"]
    assert case.live.waiting == [unknown]
    assert case.live.seen["nodes"]


async def test_where_nodes_come_by_hand_they_are_looked_at_less_often(tmp_path: Path) -> None:
    for autoscaler, later in ((None, False), (small(), True)):
        case = Case(tmp_path, autoscaler)
        await case.look(2, ["w1", "w2"])
        case.counts.follow({CPU_2: 2}, {}, {}, {}, case.now_s + 2.0)
        assert case.counts._looking.is_under_way is later
        await case.counts.close()


async def test_nodes_that_come_and_go_are_told(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    await case.look(2, ["w1", "w2"])
    case.ray.there.append(node("c"))
    await case.look(2, ["w1", "w2"])
    del case.ray.there[0]
    await case.look(2, ["w2"])
    told = await case.told()
    assert told[0] == ("node_joined", "nc (10.0.0.1, c)", "it is there")
    assert ("node_left", "na (10.0.0.1, a)", "Ray knows it no more") in told


async def test_ray_that_does_not_answer_is_a_trouble_and_no_end(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    case.ray.away = True
    await case.look(3, ["w1", "w2"])
    assert case.journal.troubled("node counts")
    case.ray.away = False
    await case.look(3, ["w1", "w2"])
    assert not case.journal.troubled("node counts")
    assert len(case.ray.asked) == 1
    await asyncio.sleep(0)
    await case.counts.close()


async def test_a_kind_that_no_node_has_is_absent_where_one_can_be_asked_for(tmp_path: Path) -> None:
    slices = "1-3xcpu-2,0-1xcpu-8,1-2xcpu-9"
    assert await Case(tmp_path, small(), slices).counts.absent() == {"cpu-8"}
    assert await Case(tmp_path, None, slices).counts.absent() == frozenset()

    case = Case(tmp_path, small(), slices)
    case.ray.there.append(replace(node("c"), cores=8))
    assert await case.counts.absent() == frozenset()
    case.ray.there[-1] = replace(case.ray.there[-1], drains_until_s=0.0)
    await case.look(2, ["w1", "w2"])
    assert await case.counts.absent() == {"cpu-8"}


async def test_kinds_that_came_later_are_looked_at_as_well(tmp_path: Path) -> None:
    case = Case(tmp_path, small())
    case.ray.there[1] = replace(node("b"), drains_until_s=0.0)
    case.settings = case.settings.with_slices("1-3xcpu-2,0-1xcpu-1")

    await case.look(2, ["w1", "w2"])

    assert case.ray.looked_for == ["cpu-2", "cpu-1"]
    assert case.live.seen["nodes"][0]["kinds"] == ["cpu-2", "cpu-1"]
