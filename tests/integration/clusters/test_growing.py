"""Nodes follow the plan on a cluster that Ray's autoscaler grows: see ``growing``.

The tests build on each other. A ledger of every query says that none is lost meanwhile; it is kept
with the events in the file ``KEEP_LEDGER``.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clusters.growing import HERE, SPOT, Asking, Growing, growing
from tests.integration.deployment import BUSY

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

FEW, MANY = 2.0, 30.0
"""Queries per second: a worker serves 20."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Growing]:
    with growing() as made:
        yield made


@pytest.fixture(scope="module")
def asking(cluster: Growing) -> Iterator[Asking]:
    made = Asking(cluster, FEW)
    yield made
    made.end()


def test_a_kind_without_a_node_is_known_and_nothing_is_asked_for(cluster: Growing) -> None:
    cluster.until(lambda: len(cluster.nodes()) == 1, "the nodes are seen")
    cluster.until(lambda: cluster.kinds() == [HERE], "the worker that is always there")

    told = cluster.get("/v1/nodes")
    assert told["autoscaler"] == (
        f"an autoscaler of 1 to 1 {HERE}, 0 to 2 {SPOT}; idle ones go after 6 s"
    )
    assert (told["missing"], told["remarks"]) == ({}, [])
    rows = {row["name"]: row for row in cluster.told("devices", "list")}
    assert (rows[SPOT]["wanted"], rows[SPOT]["running"], rows[SPOT]["nodes"]) == (0, 0, [])
    assert cluster.events("nodes_asked") == []


def test_demand_rises_and_a_node_comes(cluster: Growing, asking: Asking) -> None:
    cluster.until(lambda: len(asking.ledger()) > 20, "queries")
    asking.at(MANY)
    cluster.until(lambda: SPOT in cluster.kinds(), "a worker on a node that was not there")
    cluster.until(
        lambda: any(one.get("worker", "").startswith(SPOT) for one in asking.ledger()),
        "an answer of it",
    )
    [asked, *_] = reversed(cluster.events("nodes_asked"))
    assert asked["subject"] == SPOT
    assert "the autoscaler is asked for nodes" in asked["message"]
    assert cluster.events("node_joined")


def test_demand_falls_and_the_node_goes(cluster: Growing, asking: Asking) -> None:
    asking.at(FEW)
    cluster.until(lambda: cluster.kinds() == [HERE], "its worker leaves")
    cluster.until(lambda: len(cluster.nodes()) == 1, "its node goes")
    assert cluster.get("/v1/nodes")["missing"] == {}
    [gone, *_] = cluster.until(lambda: cluster.events("node_left"), "that is told")
    assert gone["message"] == "it was idle, and the autoscaler took it away"


def test_a_node_with_notice_is_left_before_it_goes(cluster: Growing, asking: Asking) -> None:
    asking.at(MANY)
    cluster.until(lambda: cluster.kinds() == [HERE, SPOT], "a worker on a node that comes again")
    [spot] = [node for node in cluster.nodes() if SPOT in node["kinds"]]
    before, *_ = [one["worker"] for one in cluster.workers() if one["device_kind"] == SPOT]

    told = cluster.told("nodes", "drain", spot["id"], "--deadline-s=120", "--why=spot notice")

    assert told["draining"]
    cluster.until(
        lambda: before not in [one["worker"] for one in cluster.workers()], "its worker leaves"
    )
    cluster.until(lambda: cluster.kinds() == [HERE, SPOT], "another one takes its place")
    cluster.until(
        lambda: spot["id"] not in [node["id"] for node in cluster.nodes()], "the node goes"
    )
    said = [one["message"] for one in cluster.events("node_draining")]
    assert any(f"planned for no more: {before}" in message for message in said), said


def test_no_query_is_lost_meanwhile(cluster: Growing, asking: Asking) -> None:
    ledger = asking.end()
    if kept := os.environ.get("KEEP_LEDGER"):
        told = {"ledger": ledger, "events": cluster.get("/v1/events?limit=1000")["events"]}
        Path(kept).write_text(json.dumps(told))
    outcomes = Counter(entry.get("outcome", "none") for entry in ledger)
    assert outcomes.keys() <= {"200", *BUSY}, outcomes
    assert outcomes["200"] > 100
    gap_s = longest_gap_s(ledger)
    print(f"the longest while without an answer: {gap_s:.1f} s")
    assert gap_s < 30.0


def longest_gap_s(ledger: list[dict[str, Any]]) -> float:
    """The longest while between two answers, by when they came."""
    came_s: list[float] = sorted(
        one["sent_s"] + one["took_s"] for one in ledger if one.get("outcome") == "200"
    )
    return max(later - earlier for earlier, later in pairwise(came_s))
