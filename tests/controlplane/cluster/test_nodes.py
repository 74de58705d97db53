"""What Ray lists of a node and what the node says of itself, put together."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from controlplane.cluster.kinds.node import NODE_LABEL, Node
from controlplane.cluster.nodes import Facts, NodeLook, node_of, own_facts
from controlplane.gpus import GpuModel
from variants.errors import ClusterUnavailable

LISTED: dict[str, Any] = {
    "Alive": True,
    "NodeID": "5f",
    "NodeManagerHostname": "a",
    "NodeManagerAddress": "10.0.0.1",
    "Resources": {"CPU": 4.0, "GPU": 1.0, "node:10.0.0.1": 1.0},
    "Labels": {"rack": "7"},
}
SAID = Facts(
    instructions="avx2",
    processor="a CPU",
    memory_mib=1_000,
    gpus=(GpuModel(name="NVIDIA L4", count=3, memory_mib=20_000),),
)


def test_a_node_has_the_gpus_that_ray_hands_out() -> None:
    assert node_of(LISTED, SAID, "a") == Node(
        id="5f",
        name="a",
        cores=4,
        labels={NODE_LABEL: "5f", "rack": "7"},
        instructions="avx2",
        processor="a CPU",
        memory_mib=1_000,
        gpus=(GpuModel(name="NVIDIA L4", count=1, memory_mib=20_000),),
    )


def test_of_a_node_that_says_nothing_less_is_known() -> None:
    silent = node_of(LISTED, None, "a")

    assert (silent.cores, silent.instructions, silent.gpus) == (4, None, ())


def test_a_node_that_stays_silent_is_asked_ever_less_often() -> None:
    now = [0.0]
    asked_at: list[float] = []

    def ask(_ids: Sequence[str], _patience_s: float) -> dict[str, Facts]:
        asked_at.append(now[0])
        return {}

    there = [LISTED]
    look = NodeLook(lambda: there, ask, lambda: now[0])
    for now[0] in range(0, 1_000, 10):
        look.look()
        if now[0] == 600:
            there = [LISTED | {"NodeID": "60"}]  # another one is asked at once

    assert asked_at[:8] == [0, 10, 20, 30, 40, 60, 100, 170]
    assert 610 in asked_at


def test_each_node_is_asked_once_and_one_that_is_silent_again() -> None:
    head = LISTED | {"NodeID": "0", "Resources": {"node:10.0.0.9": 1.0}}
    dead = LISTED | {"NodeID": "1", "Alive": False}
    other = LISTED | {"NodeID": "60", "NodeManagerAddress": "10.0.0.2"}
    asked: list[list[str]] = []

    def ask(ids: Sequence[str], _patience_s: float) -> dict[str, Facts]:
        asked.append(list(ids))
        return {id_: SAID for id_ in ids if id_ == "5f" or len(asked) > 1}

    clock = itertools.count(step=10.0)
    look = NodeLook(lambda: (head, dead, LISTED, other), ask, lambda: next(clock))
    found = [[(node.name, node.instructions) for node in look.look()] for _ in range(3)]

    assert asked == [["5f", "60"], ["60"]]
    assert found[0] == [("a (10.0.0.1)", "avx2"), ("a (10.0.0.2)", None)]
    assert found[1] == found[2] == [("a (10.0.0.1)", "avx2"), ("a (10.0.0.2)", "avx2")]


def test_nodes_are_counted_that_may_have_workers_and_none_is_asked() -> None:
    head = LISTED | {"NodeID": "0", "Resources": {"node:10.0.0.9": 1.0}}
    dead = LISTED | {"NodeID": "1", "Alive": False}
    of_gpus = LISTED | {"NodeID": "2", "Resources": {"GPU": 1.0}}

    def ask(ids: Sequence[str], _patience_s: float) -> dict[str, Facts]:
        raise AssertionError(ids)

    assert NodeLook(lambda: (head, dead), ask).count() == 0
    assert NodeLook(lambda: (head, LISTED, dead, of_gpus), ask).count() == 2


def test_a_cluster_that_does_not_answer_is_one_error() -> None:
    def gone() -> list[dict[str, Any]]:
        raise ConnectionError("nobody listens")

    for asked in (NodeLook(gone).look, NodeLook(gone).count):
        with pytest.raises(ClusterUnavailable, match="what its nodes are: nobody listens"):
            asked()


def test_this_machine_says_what_it_is() -> None:
    facts = own_facts()

    assert facts.instructions
    assert facts.processor
    assert facts.memory_mib > 100
