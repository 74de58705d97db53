"""Where replicas may run, how many there are, and what they are told. Ray is not started."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray._common.constants import HEAD_NODE_RESOURCE_NAME

from controlplane import app
from controlplane.cluster.sent_settings import SentSettings

TOKEN = "open-sesame"


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("MODELLESS_") or name == "REDIS_URL":
            monkeypatch.delenv(name)
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("MODELLESS_API_TOKEN", TOKEN)
    monkeypatch.setenv("MODELLESS_CORES", "4")


@pytest.fixture
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELLESS_RAY_ADDRESS", "auto")


def deployment(application: Any) -> Any:
    return application._bound_deployment


def resources(application: Any) -> dict[str, float]:
    return dict(deployment(application).ray_actor_options.get("resources") or {})


@pytest.mark.parametrize("application", [app.gateway, app.controller, app.worker])
def test_a_log_has_no_line_for_each_look_at_a_replica(application: Any) -> None:
    logs = deployment(application({}))._deployment_config.logging_config
    assert logs["enable_access_log"] is False


@pytest.mark.parametrize("application", [app.gateway, app.controller, app.worker])
def test_the_settings_say_how_a_log_is_written(
    application: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encoding() -> str:
        return str(deployment(application({}))._deployment_config.logging_config["encoding"])

    assert encoding() == "TEXT"
    monkeypatch.setenv("MODELLESS_LOG_FORMAT", "json")
    assert encoding() == "JSON"


def test_on_one_machine_there_is_one_gateway_and_no_place_to_choose() -> None:
    gateway = app.gateway({})

    assert deployment(gateway).num_replicas == 1
    assert resources(gateway) == resources(app.controller({})) == {}


@pytest.mark.usefixtures("_cluster")
def test_on_a_cluster_gateways_and_control_loop_run_on_the_head() -> None:
    gateway = app.gateway({})

    assert deployment(gateway).num_replicas == 2
    assert resources(gateway).keys() == {HEAD_NODE_RESOURCE_NAME}
    assert 2 * resources(gateway)[HEAD_NODE_RESOURCE_NAME] <= 1
    assert resources(app.controller({})).keys() == {HEAD_NODE_RESOURCE_NAME}
    assert resources(app.worker({})) == {}


@pytest.mark.usefixtures("_cluster")
def test_gateways_run_one_each_on_the_nodes_that_were_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODELLESS_GATEWAY_NODES", "edge")

    assert resources(app.gateway({})) == {"edge": 1.0}
    assert resources(app.controller({})).keys() == {HEAD_NODE_RESOURCE_NAME}


@pytest.mark.usefixtures("_cluster")
def test_replicas_are_told_the_settings_and_no_secret(tmp_path: Path) -> None:
    for application in (app.gateway({}), app.controller({})):
        [sent] = deployment(application).init_args
        assert isinstance(sent, SentSettings)
        assert sent.values["state_dir"] == str(tmp_path)
        assert sent.values["cores"] == 4
        assert TOKEN not in repr(sent)
    config, supplies = deployment(app.worker({})).init_args
    assert (config["device_kind"], config["secret_digest"]) == ("cpu-4", sent.secret)
    assert supplies.copies_dir == str(tmp_path / "copies")
    assert TOKEN not in repr((config, supplies))


def test_workers_are_what_the_settings_say_of_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELLESS_CORES", "0")
    monkeypatch.setenv("MODELLESS_SLICES", "2xcpu-1:memory_mib=64,1-3xcpu-2:memory_mib=128")

    told = []
    for args in ({"device_kind": "cpu-1"}, {"device_kind": "cpu-2"}, {}):
        worker = deployment(app.worker(args))
        config, supplies = worker.init_args
        assert supplies is None
        told.append(
            (
                config["device_kind"],
                config["cores"],
                config["memory_mib"],
                worker.ray_actor_options["num_cpus"],
                worker.num_replicas,
            )
        )

    assert told == [("cpu-1", 1, 64, 1, 2), ("cpu-2", 2, 128, 2, 3), ("cpu-1", 1, 64, 1, 2)]


@pytest.mark.usefixtures("_cluster")
def test_workers_run_on_the_nodes_of_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELLESS_CORES", "0")
    monkeypatch.setenv("MODELLESS_SLICES", "cpu-1-new:nodes=modelless.io/kind=fast|new,cpu-1")

    placed = {
        kind: deployment(app.worker({"device_kind": kind})).ray_actor_options.get("label_selector")
        for kind in ("cpu-1-new", "cpu-1", "cpu-1-other")
    }

    assert placed == {
        "cpu-1-new": {"modelless.io/kind": "in(fast,new)"},
        "cpu-1": None,
        "cpu-1-other": None,
    }


def test_a_worker_with_a_gpu_takes_no_core_from_those_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODELLESS_CORES", "0")
    monkeypatch.setenv("MODELLESS_PIN_CORES", "true")
    monkeypatch.setenv("MODELLESS_SLICES", "1xcpu-2:memory_mib=64,1xnvidia-h200:memory_mib=64")

    workers = [deployment(app.worker({"device_kind": kind})) for kind in ("cpu-2", "nvidia-h200")]

    assert [worker.init_args[0]["pin_cores"] for worker in workers] == [True, False]


SENT = SentSettings(release="1", values={}, secret="", digests={})
SCRIPT = """
import pickle, sys
import ray.serve, ray.util
before = set(sys.modules)
pickle.loads(bytes.fromhex(sys.argv[1]))
import controlplane.gateway_replica
rooms = ("variants", "planner", "workers", "profiler", "controlplane")
new = {name for name in set(sys.modules) - before if not hasattr(sys.modules[name], "__path__")}
print(*sorted(name for name in new if name.partition(".")[0] in rooms))
"""


def test_before_a_gateway_gives_way_to_others_its_replica_imports_next_to_nothing() -> None:
    command = [sys.executable, "-c", SCRIPT, pickle.dumps(SENT).hex()]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert found == [
        "controlplane.cluster.sent_settings",
        "controlplane.gateway.listening",
        "controlplane.gateway_replica",
        "workers.process.niceness",
        "workers.process.release",
        "workers.replica",
    ]


async def test_a_replica_that_never_began_has_nothing_to_stop() -> None:
    """Serve calls this of one whose start failed; an error of its own would hide the cause."""
    from controlplane.gateway_replica import GatewayReplica
    from workers.deployment import WorkerReplica

    for kind in (GatewayReplica, WorkerReplica, app.ControllerReplica):
        replica: Any = object.__new__(kind)
        await replica.__del__()


class Stopped:
    """A gateway whose server is none: it has ended, or never began."""

    def check(self) -> None:
        raise RuntimeError("the HTTP server has ended")

    async def stop(self, *, others_stay: bool) -> None: ...


async def test_a_gateway_that_serve_ends_while_it_starts_fails_no_health_check() -> None:
    """Serve asks it once more at the end of its start, and would log that with a traceback."""
    from controlplane.gateway_replica import GatewayReplica

    replica: Any = object.__new__(GatewayReplica)
    replica._gateway, replica._ends = Stopped(), False
    with pytest.raises(RuntimeError, match="the HTTP server has ended"):
        await replica.check_health()
    await replica.__del__()
    await replica.check_health()
