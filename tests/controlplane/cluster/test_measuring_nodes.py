"""Calls of Ray's that would hold up the control loop: see also ``tests.integration.clusters``."""

import threading

import pytest

from controlplane.cluster.measuring_nodes import in_time
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
