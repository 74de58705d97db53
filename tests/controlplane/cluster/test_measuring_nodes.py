"""Calls of Ray's that would hold up the control loop: see also ``tests.integration.clusters``."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from controlplane.cluster.measuring_nodes import MeasuringNodes, in_time
from controlplane.cluster.sent_settings import SentSettings
from controlplane.settings import Settings
from variants.errors import ClusterUnavailable


async def test_a_control_store_that_does_not_answer_holds_up_nothing() -> None:
    back = threading.Event()
    try:
        with pytest.raises(ClusterUnavailable, match="does not answer"):
            await in_time(back.wait, patience_s=0.01)
    finally:
        back.set()


async def test_what_the_control_store_refuses_is_said() -> None:
    def refuse() -> None:
        raise ConnectionError("traceback\nno such node")

    with pytest.raises(ClusterUnavailable, match=r"^Ray's control store: no such node$"):
        await in_time(refuse)


async def test_what_it_answers_comes_back() -> None:
    assert await in_time(lambda: 7) == 7


def listed(*, alive: bool = True, draining: bool = False) -> list[Mapping[str, Any]]:
    node = {"NodeID": "n-1", "Alive": alive} | ({"DrainsUntilMs": 0} if draining else {})
    return [{"NodeID": "n-0", "Alive": True}, node]


@pytest.mark.parametrize(
    ("looks", "stays"),
    [
        ([listed()] * 99, True),
        ([listed(), listed(), listed(alive=False)], False),
        ([listed(), listed(draining=True)], False),
        ([[]], False),
        ([listed(), None], False),
    ],
)
async def test_a_node_stays_if_it_is_there_for_a_while(
    looks: list[list[Mapping[str, Any]] | None], stays: bool
) -> None:
    """Ray notices only after a while that a machine is gone, whose processes ended before."""
    coming = iter(looks)

    def look() -> Iterable[Mapping[str, Any]]:
        found = next(coming)
        if found is None:
            raise ConnectionError("no control store")
        return found

    def settings() -> Settings:
        raise AssertionError("nothing is measured")

    nodes = MeasuringNodes(cast(SentSettings, None), settings, listed=look, look_every_s=0.0)
    assert await nodes.stays("n-1") is stays
