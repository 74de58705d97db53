"""Watching nodes: what is told to gateways, and when an event says it."""

import asyncio
from pathlib import Path
from typing import Any, cast

from controlplane.cluster.kind_applications import Deployed
from controlplane.cluster.kinds.node import NODE_LABEL, Node
from controlplane.controller.events.journal import Journal
from controlplane.controller.nodes.node_watch import LOOK_EVERY_S, NodeWatch
from controlplane.live_state import LiveState
from controlplane.settings import load_settings
from controlplane.slices import Kind, Slice, slices_of
from variants.catalog.memory import MemoryCatalog
from variants.errors import ClusterUnavailable
from variants.types import DeviceKindName

CPU_2 = DeviceKindName("cpu-2")


class Nodes:
    def __init__(self) -> None:
        self.there: list[Node] = []
        self.asked = 0
        self.away = False

    async def nodes(self) -> tuple[Node, ...]:
        self.asked += 1
        if self.away:
            raise ClusterUnavailable("Ray does not answer")
        return tuple(self.there)


class Live:
    def __init__(self) -> None:
        self.seen: Any = None

    async def put_nodes(self, seen: Any) -> None:
        self.seen = seen


def node(name: str, cores: int) -> Node:
    return Node(id=name, name=name, cores=cores, labels={NODE_LABEL: name}, instructions="avx2")


async def test_what_nodes_offer_is_told_once(tmp_path: Path) -> None:
    catalog, nodes, live = MemoryCatalog(), Nodes(), Live()
    settings = load_settings(state_dir=tmp_path, ray_address="auto", slices="cpu-2")
    journal = Journal(catalog)
    watch = NodeWatch(nodes, cast(LiveState, live), journal, settings)
    nodes.there = [node("a", 2), node("b", 1)]

    for _ in range(2):
        await watch.look({CPU_2: 1}, {})
    await journal.store_events()

    (advice,) = live.seen["advice"]
    assert live.seen["kinds"] == {"cpu-2": ["a"]}
    assert advice.startswith("nodes offer kinds that no workers use: cpu-1 (b);")
    assert [(one.kind, one.message) for one in catalog.events(9)] == [("nodes", advice)]

    nodes.there.pop()
    await watch.look({CPU_2: 1}, {})
    assert live.seen == {"kinds": {"cpu-2": ["a"]}, "advice": []}

    nodes.away = True
    await watch.look({CPU_2: 1}, {})
    assert journal.troubled("look at the nodes")


class Serve:
    """Serve, that says what was deployed."""

    def __init__(self) -> None:
        self.deploys: list[str] = []

    async def deployed(self) -> dict[DeviceKindName, Deployed]:
        return {CPU_2: Deployed(slice=None, target=1, nodes=frozenset({"a"}), placed=1)}

    async def deploy(self, kind: Kind, one: Slice, replicas: int) -> None:
        self.deploys.append(kind.name)

    async def remove(self, kind: DeviceKindName) -> None:
        raise AssertionError(kind)


async def test_where_kinds_follow_nodes_there_is_nothing_left_to_do(tmp_path: Path) -> None:
    catalog, nodes, live, serve = MemoryCatalog(), Nodes(), Live(), Serve()
    settings = load_settings(state_dir=tmp_path, ray_address="auto", slices="cpu-2:source=found")
    journal = Journal(catalog)
    watch = NodeWatch(nodes, cast(LiveState, live), journal, settings, serve)
    nodes.there = [node("a", 2), node("b", 2), node("c", 1)]

    await watch.look({}, {})

    assert serve.deploys == ["cpu-1"]
    assert live.seen["advice"] == []
    assert live.seen["kinds"] == {"cpu-2": ["a", "b"], "cpu-1": ["c"]}
    assert [(one.name, one.most) for one in slices_of(live.seen["slices"])] == [
        ("cpu-2", 2),
        ("cpu-1", 1),
    ]
    assert watch.settings.as_seen(live.seen).kinds == watch.settings.kinds


async def test_a_cluster_is_looked_at_now_and_then_and_one_machine_never(tmp_path: Path) -> None:
    nodes, live = Nodes(), cast(LiveState, Live())
    alone = load_settings(state_dir=tmp_path, cores=2)
    cluster = load_settings(state_dir=tmp_path, cores=2, ray_address="auto")
    journal = Journal(MemoryCatalog())
    NodeWatch(nodes, live, journal, alone).follow({CPU_2: 1}, {}, 0.0)
    watch = NodeWatch(nodes, live, journal, cluster)

    for now_s in (0.0, 1.0, LOOK_EVERY_S, LOOK_EVERY_S + 1):
        watch.follow({CPU_2: 1}, {}, now_s)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert nodes.asked == 2
    await watch.close()
