"""What Serve's details say of the workers of each kind."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.kind_applications import Deployed, KindApplications, LaterKinds
from controlplane.settings import load_settings
from tests.workers.builders import until
from variants.errors import ClusterUnavailable


def application(*replicas: tuple[str, str | None], target: int = 2, told: Any = None) -> Any:
    """An application of workers, by the state and the node of each."""
    return {
        "status": "RUNNING",
        "deployments": {
            "worker": {
                "target_num_replicas": target,
                "deployment_config": {"user_config": told},
                # One that has no node yet says nothing of it.
                "replicas": [
                    {"state": state} | ({"node_id": node} if node else {})
                    for state, node in replicas
                ],
            }
        },
    }


async def deployed(**applications: Any) -> Mapping[str, Deployed]:
    async def details() -> Mapping[str, Any]:
        found = {f"modelless-worker-{name}": each for name, each in applications.items()}
        return {"applications": found}

    def made(*_: Any) -> Any:
        raise AssertionError

    found = await KindApplications(made, details).deployed()
    return {str(name): each for name, each in found.items()}


async def test_a_worker_that_starts_has_its_node_and_one_that_stops_has_left_it() -> None:
    replicas = (("RUNNING", "a"), ("STARTING", "b"), ("STARTING", None), ("STOPPING", "c"))

    found = await deployed(cpu=application(*replicas, target=3))

    assert found == {
        "cpu": Deployed(slice=None, target=3, nodes=frozenset({"a", "b"}), placed=2),
    }


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ({"slice": "1xcpu:cores=2"}, ""),
        ({}, ""),
        (None, ""),
        ({"slice": "1xcpu:cores=2:colour=red"}, "what its application says of it cannot be read: "),
        ({"slice": ""}, "what its application says of it cannot be read: "),
        ({"slice": "1xother:cores=2"}, "its application says that it is other"),
    ],
)
async def test_what_an_application_says_of_its_kind_may_be_wrong(told: Any, wrong: str) -> None:
    [found] = (await deployed(cpu=application(told=told))).values()

    assert (found.slice is None) == (bool(wrong) or not told)
    assert found.wrong.startswith(wrong)
    assert bool(found.wrong) == bool(wrong)


def test_what_there_may_be_no_worker_of_is_deployed_later(tmp_path: Path) -> None:
    def later(slices: str) -> list[str]:
        kinds = load_settings(state_dir=tmp_path, slices=slices).kinds
        known = LaterKinds(lambda: kinds, lambda *_: None)
        return [name for name in ("cpu-1", "cpu-2", "cpu-4", "other") if known.includes(name)]

    assert later("1xcpu-1,0-2xcpu-2,1-2xcpu-4") == ["cpu-2"]
    assert later("1xcpu-1,0xcpu-4") == ["cpu-4"]
    assert later("1xcpu-2|2xcpu-1") == ["cpu-1", "cpu-2"]


async def test_a_kind_is_not_deployed_again_while_a_call_that_was_given_up_goes_on(
    tmp_path: Path,
) -> None:
    kinds = load_settings(state_dir=tmp_path, slices="1xcpu-1,0-2xcpu-2").kinds
    begun, answered, deployed = threading.Event(), threading.Event(), list[str]()

    def deploy(name: str, _: Any) -> None:
        deployed.append(name)
        begun.set()
        answered.wait(60)

    later = LaterKinds(lambda: kinds, lambda *_: None, deploy, patience_s=3_600)
    first = asyncio.create_task(later.deploy("cpu-2", 1))
    await asyncio.to_thread(begun.wait, 60)
    first.cancel()  # it is waited for no longer
    with pytest.raises(ClusterUnavailable, match="workers of cpu-2 are being deployed"):
        await later.deploy("cpu-2", 1)
    assert deployed == ["modelless-worker-cpu-2"]

    answered.set()
    await until(lambda: not later._under_way)
    await later.deploy("cpu-2", 1)
    assert deployed == ["modelless-worker-cpu-2"] * 2
