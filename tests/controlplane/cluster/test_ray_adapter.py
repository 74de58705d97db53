"""Listing workers over Ray Serve's handles, without Serve."""

import asyncio
from dataclasses import asdict
from typing import Any

import pytest
import ray
from ray.exceptions import RayError
from ray.serve._private.common import DeploymentID, ReplicaState
from ray.serve.exceptions import DeploymentUnavailableError

from controlplane.cluster.ray_adapter import ServeCluster, WorkerAddress, failed_starts
from variants.errors import ClusterUnavailable

W1 = WorkerAddress(id="w1", address="unix:/w1", device_kind="cpu-1")
W2 = WorkerAddress(id="w2", address="unix:/w2", device_kind="cpu-1")


class Handle:
    """Stands for Serve's handle and for the broadcast that it returns."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.hangs = self.refuses = self.shut = False

    def broadcast(self, method: str) -> "Handle":
        assert method == "describe"
        return self

    async def results_async(self, **_: Any) -> list[object]:
        if self.hangs:
            raise TimeoutError("Timed out waiting for broadcast results.")
        if self.refuses:
            raise DeploymentUnavailableError(DeploymentID("worker", "modelless-worker-cpu-1"))
        return self.answers

    async def shutdown_async(self) -> None:
        self.shut = True


class Serve:
    """What Serve says of one kind of workers."""

    def __init__(self, running: int = 0) -> None:
        self.away = False
        self.states = ["RUNNING"] * running
        self.ids = ["a", "b"]
        self.applications: dict[str, Any] = {"modelless-worker-cpu-1": None}

    async def details(self) -> dict[str, Any]:
        if self.away:
            raise ClusterUnavailable("Ray Serve does not answer: it is away")
        worker = {
            "target_num_replicas": len(self.states),
            "replicas": [
                {"state": ReplicaState(state), "replica_id": self.ids[n % len(self.ids)]}
                for n, state in enumerate(self.states)
            ],
        }
        deployments = {"deployments": {"worker": worker}}
        return {"applications": {k: v or deployments for k, v in self.applications.items()}}


async def test_workers_that_failed_to_answer_or_have_no_socket_yet_are_left_out() -> None:
    handle = Handle()
    starting = {**asdict(W2), "address": ""}
    handle.answers = [asdict(W1), RuntimeError("it died"), starting]
    assert await ServeCluster(lambda _: handle).workers(["cpu-1"]) == [W1]


async def test_a_worker_that_hangs_does_not_hide_the_others() -> None:
    handle = Handle()
    cluster = ServeCluster(lambda _: handle, Serve(running=2).details)
    handle.answers = [asdict(W1), asdict(W2)]
    assert await cluster.workers(["cpu-1"]) == [W1, W2]
    handle.hangs = True
    assert await cluster.workers(["cpu-1"]) == [W1, W2]
    handle.hangs, handle.answers = False, [asdict(W2)]
    assert await cluster.workers(["cpu-1"]) == [W2]


async def test_one_that_takes_in_a_configuration_is_not_gone() -> None:
    """A handle does not know it for a moment, and Serve says that it runs."""
    first = WorkerAddress(id="cpu-1-a", address="unix:/a", device_kind="cpu-1")
    second = WorkerAddress(id="cpu-1-b", address="unix:/b", device_kind="cpu-1")
    handle, serve = Handle(), Serve(running=2)
    cluster = ServeCluster(lambda _: handle, serve.details)
    handle.answers = [asdict(first), asdict(second)]
    assert await cluster.workers(["cpu-1"]) == [first, second]

    handle.answers, serve.states = [asdict(first)], ["RUNNING", "UPDATING"]
    assert await cluster.workers(["cpu-1"]) == [first, second]
    serve.away = True
    assert await cluster.workers(["cpu-1"]) == [first, second]
    serve.away, serve.states = False, ["RUNNING", "STOPPING"]
    assert await cluster.workers(["cpu-1"]) == [first]


async def test_one_that_died_is_gone_before_serve_knows_it() -> None:
    first = WorkerAddress(id="cpu-1-a", address="unix:/a", device_kind="cpu-1")
    second = WorkerAddress(id="cpu-1-b", address="unix:/b", device_kind="cpu-1")
    handle = Handle()
    cluster = ServeCluster(lambda _: handle, Serve(running=2).details)
    handle.answers = [asdict(first), asdict(second)]
    assert await cluster.workers(["cpu-1"]) == [first, second]
    handle.answers = [asdict(first), RuntimeError("it died")]
    assert await cluster.workers(["cpu-1"]) == [first]


async def test_one_that_takes_in_a_configuration_while_another_dies_is_back_at_the_next_look() -> (
    None
):
    first, second, third = (
        WorkerAddress(id=f"cpu-1-{one}", address=f"unix:/{one}", device_kind="cpu-1")
        for one in "abc"
    )
    handle, serve = Handle(), Serve(running=3)
    serve.ids = ["a", "b", "c"]
    cluster = ServeCluster(lambda _: handle, serve.details)
    handle.answers = [asdict(first), asdict(second), asdict(third)]
    assert await cluster.workers(["cpu-1"]) == [first, second, third]

    handle.answers = [asdict(first), RuntimeError("it died")]  # the third is not asked
    for _ in range(2):
        assert await cluster.workers(["cpu-1"]) == [first]
    handle.answers, serve.states = [asdict(first)], ["RUNNING", "STOPPING", "UPDATING"]
    assert await cluster.workers(["cpu-1"]) == [first, third]
    handle.answers, serve.states = [asdict(first), asdict(third)], ["RUNNING", "STOPPING"]
    assert await cluster.workers(["cpu-1"]) == [first, third]


async def test_workers_that_were_never_listed_are_unknown() -> None:
    handle = Handle()
    handle.hangs = True
    with pytest.raises(ClusterUnavailable, match="workers of cpu-1 cannot be listed: Timed out"):
        await ServeCluster(lambda _: handle, Serve(running=1).details).workers(["cpu-1"])


async def test_a_kind_without_replicas_has_no_workers() -> None:
    """A handle refuses the call then; that is an answer, also to who never had another."""
    serve = Serve()
    handle = Handle()
    handle.refuses = True
    assert await ServeCluster(lambda _: handle, serve.details).workers(["cpu-1"]) == []
    serve.states = ["STARTING", "STOPPING"]
    assert await ServeCluster(lambda _: handle, serve.details).workers(["cpu-1"]) == []
    serve.applications = {}
    assert await ServeCluster(lambda _: handle, serve.details).workers(["cpu-1"]) == []


async def test_to_none_and_back() -> None:
    serve, handle = Serve(running=2), Handle()
    cluster = ServeCluster(lambda _: handle, serve.details)
    handle.answers = [asdict(W1), asdict(W2)]
    assert await cluster.workers(["cpu-1"]) == [W1, W2]
    serve.states, handle.refuses = [], True
    for _ in range(5):
        assert await cluster.workers(["cpu-1"]) == []
    # The first replica runs, but the handle has not heard of it yet.
    serve.states = ["RUNNING"]
    assert await cluster.workers(["cpu-1"]) == []
    handle.refuses, handle.answers = False, [asdict(W1)]
    assert await cluster.workers(["cpu-1"]) == [W1]


async def test_a_handle_that_has_not_heard_of_replicas_is_no_proof_that_there_are_none() -> None:
    serve, handle = Serve(running=2), Handle()
    cluster = ServeCluster(lambda _: handle, serve.details)
    handle.refuses = True
    with pytest.raises(ClusterUnavailable, match="workers of cpu-1 cannot be listed"):
        await cluster.workers(["cpu-1"])
    handle.refuses, handle.answers = False, [asdict(W1), asdict(W2)]
    assert await cluster.workers(["cpu-1"]) == [W1, W2]
    handle.refuses = True
    assert await cluster.workers(["cpu-1"]) == [W1, W2]


async def test_while_serve_does_not_answer_workers_stay_as_known() -> None:
    serve, handle = Serve(running=1), Handle()
    cluster = ServeCluster(lambda _: handle, serve.details)
    handle.answers = [asdict(W1)]
    assert await cluster.workers(["cpu-1"]) == [W1]
    handle.refuses = serve.away = True
    assert await cluster.workers(["cpu-1"]) == [W1]
    with pytest.raises(ClusterUnavailable, match="Serve does not answer"):
        await ServeCluster(lambda _: handle, serve.details).workers(["cpu-1"])


async def test_a_handle_that_keeps_failing_is_made_anew() -> None:
    stuck, fresh = Handle(), Handle()
    stuck.hangs, fresh.answers = True, [asdict(W1)]
    handles = [stuck, fresh]
    cluster = ServeCluster(lambda _: handles.pop(0), Serve(running=1).details)
    for _ in range(3):
        with pytest.raises(ClusterUnavailable):
            await cluster.workers(["cpu-1"])
    assert stuck.shut
    assert await cluster.workers(["cpu-1"]) == [W1]
    assert not fresh.shut


async def test_targets_are_those_of_the_kinds_that_are_deployed() -> None:
    serve = Serve(running=1)
    cluster = ServeCluster(lambda _: Handle(), serve.details)
    assert await cluster.targets(["cpu-1", "gpu"]) == {"cpu-1": 1}
    serve.applications["modelless-worker-gpu"] = {"deployments": {}}
    assert await cluster.targets(["cpu-1", "gpu"]) == {"cpu-1": 1}


class Later:
    """Deploys a kind that may be without workers."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.away = False
        self.deployed: list[tuple[str, int]] = []

    def includes(self, kind: str) -> bool:
        return kind == "spot"

    async def deploy(self, kind: str, count: int) -> None:
        if self.away:
            raise ClusterUnavailable("it is away")
        self.deployed.append((kind, count))
        self.serve.applications[f"modelless-worker-{kind}"] = None


async def test_a_kind_that_begins_without_workers_is_deployed_when_some_are_wanted() -> None:
    serve, handle = Serve(running=1), Handle()
    handle.answers = [asdict(W1)]
    later = Later(serve)
    cluster = ServeCluster(lambda _: handle, serve.details, later)
    assert await cluster.targets(["cpu-1", "spot", "gpu"]) == {"cpu-1": 1, "spot": 0}
    assert await cluster.workers(["spot"]) == []  # although the handle would answer

    later.away = True
    with pytest.raises(ClusterUnavailable):
        await cluster.scale("spot", 2)
    later.away = False
    await cluster.scale("spot", 2)

    assert later.deployed == [("spot", 2)]
    assert await cluster.workers(["spot"]) == [W1]
    assert await cluster.targets(["spot"]) == {"spot": 1}


async def test_what_was_asked_before_a_kind_was_deployed_does_not_hide_its_workers() -> None:
    """Workers are scaled beside the turns, in which Serve is asked what it was told to run."""
    serve, handle = Serve(running=1), Handle()
    handle.answers = [asdict(W1)]
    answers = asyncio.Event()
    first = True

    async def details() -> dict[str, Any]:
        nonlocal first
        found, waits, first = await serve.details(), first, False
        if waits:
            await answers.wait()
        return found

    cluster = ServeCluster(lambda _: handle, details, Later(serve))
    asked = asyncio.create_task(cluster.targets(["spot"]))
    await asyncio.sleep(0)
    await cluster.scale("spot", 2)
    answers.set()
    assert await asked == {"spot": 0}
    assert await cluster.workers(["spot"]) == [W1]


async def test_what_a_call_deployed_that_was_given_up_is_not_deployed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve, scaled = Serve(running=1), []
    later = Later(serve)
    cluster = ServeCluster(lambda _: Handle(), serve.details, later)
    await cluster.targets(["spot"])
    serve.applications["modelless-worker-spot"] = None

    async def scale(_: str, __: str, application: str, count: int) -> None:
        scaled.append((application, count))

    monkeypatch.setattr("controlplane.cluster.ray_adapter._scale", scale)
    await cluster.scale("spot", 1)
    assert (later.deployed, scaled) == ([], [("modelless-worker-spot", 1)])

    del serve.applications["modelless-worker-spot"]  # as `modelless upgrade` does
    await cluster.scale("spot", 2)
    assert later.deployed == [("spot", 2)]

    del serve.applications["modelless-worker-spot"]
    await cluster.scale("spot", 0)  # none is what there is
    assert later.deployed == [("spot", 2)]
    assert await cluster.workers(["spot"]) == []


async def test_an_application_that_serve_has_just_heard_of_is_not_deployed_again() -> None:
    serve = Serve(running=1)
    serve.applications["modelless-worker-spot"] = {"deployments": {}}
    cluster = ServeCluster(lambda _: Handle(), serve.details, Later(serve))
    assert await cluster.targets(["cpu-1", "spot"]) == {"cpu-1": 1}


def test_a_start_that_failed_is_none_that_follows_a_loss() -> None:
    def details(**worker: Any) -> dict[str, Any]:
        deployments = {"deployments": {"worker": {"replicas": [], **worker}}}
        return {"applications": {"modelless-worker-cpu-1": deployments}}

    trace = "Traceback\n  File x\nOSError: [Errno 28] No space left on device"
    lost = details(status_trigger="HEALTH_CHECK_FAILED", message="A replica died")
    failing = details(status_trigger="REPLICA_STARTUP_FAILED", message=trace)
    refusing = details(message="variants.errors.Conflict: MODELLESS_CORES is another one")

    assert failed_starts(lost, ["cpu-1", "cpu-2"]) == {}
    assert failed_starts(failing, ["cpu-1"]) == {"cpu-1": "[Errno 28] No space left on device"}
    assert failed_starts(refusing, ["cpu-1"]) == {"cpu-1": "MODELLESS_CORES is another one"}


async def test_a_worker_is_ended_as_the_actor_that_ray_serve_calls_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[object] = []
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: (namespace, name))
    monkeypatch.setattr(ray, "kill", ended.append)

    await ServeCluster().end_worker("cpu-1-abc", "cpu-1")

    assert ended == [("serve", "SERVE_REPLICA::modelless-worker-cpu-1#worker#abc")]


async def test_a_worker_that_is_gone_is_ended_already(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str, namespace: str) -> None:
        raise ValueError(f"there is no actor {name}")

    monkeypatch.setattr(ray, "get_actor", none)
    await ServeCluster().end_worker("cpu-1-abc", "cpu-1")


async def test_where_ray_does_not_answer_a_worker_is_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(name: str, namespace: str) -> None:
        raise RayError("the control store is away")

    monkeypatch.setattr(ray, "get_actor", away)
    with pytest.raises(ClusterUnavailable, match="worker cpu-1-abc cannot be ended"):
        await ServeCluster().end_worker("cpu-1-abc", "cpu-1")
