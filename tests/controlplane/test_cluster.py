"""Listing workers over Ray Serve's handles, without Serve."""

from dataclasses import asdict
from typing import Any

import pytest

from controlplane.cluster import ServeCluster, WorkerAddress
from variants.errors import ClusterUnavailable

W1 = WorkerAddress(id="w1", address="unix:/w1", device_kind="cpu-1")
W2 = WorkerAddress(id="w2", address="unix:/w2", device_kind="cpu-1")


class Handle:
    """Stands for Serve's handle and for the broadcast that it returns."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.hangs = False

    def broadcast(self, method: str) -> "Handle":
        assert method == "describe"
        return self

    async def results_async(self, **_: Any) -> list[object]:
        if self.hangs:
            raise TimeoutError("Timed out waiting for broadcast results.")
        return self.answers


async def test_workers_that_failed_to_answer_or_have_no_socket_yet_are_left_out() -> None:
    handle = Handle()
    starting = {**asdict(W2), "address": ""}
    handle.answers = [asdict(W1), RuntimeError("it died"), starting]
    assert await ServeCluster(lambda _: handle).workers(["cpu-1"]) == [W1]


async def test_a_worker_that_hangs_does_not_hide_the_others() -> None:
    handle = Handle()
    cluster = ServeCluster(lambda _: handle)
    handle.answers = [asdict(W1), asdict(W2)]
    assert await cluster.workers(["cpu-1"]) == [W1, W2]
    handle.hangs = True
    assert await cluster.workers(["cpu-1"]) == [W1, W2]
    handle.hangs, handle.answers = False, [asdict(W2)]
    assert await cluster.workers(["cpu-1"]) == [W2]


async def test_workers_that_were_never_listed_are_unknown() -> None:
    handle = Handle()
    handle.hangs = True
    with pytest.raises(ClusterUnavailable, match="workers of cpu-1 cannot be listed: Timed out"):
        await ServeCluster(lambda _: handle).workers(["cpu-1"])
