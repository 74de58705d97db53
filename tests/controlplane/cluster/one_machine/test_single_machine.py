"""Ray on one machine: what is not started, and what stands in for its agent."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from controlplane.cluster.one_machine.idle_agent import PORTS
from controlplane.cluster.one_machine.single_machine import IDLE_AGENT, bare_ray

pytestmark = pytest.mark.slow

RAYLET = """
import os, subprocess, sys
os.environ["RAY_RAYLET_PID"] = str(os.getpid())
agent = subprocess.Popen(sys.argv[1:])
print(agent.pid, flush=True)
agent.wait()
"""
PATIENCE_S = 60.0


def test_the_agent_says_that_it_has_no_ports_and_ends_with_its_raylet(tmp_path: Path) -> None:
    agent = [sys.executable, "-I", "-S", str(IDLE_AGENT), "/ray/dashboard/agent.py"]
    given = ["--node-id=ab12", f"--session-dir={tmp_path}", "--minimal"]
    with subprocess.Popen(
        [sys.executable, "-c", RAYLET, *agent, *given], stdout=subprocess.PIPE, text=True
    ) as raylet:
        assert raylet.stdout is not None
        found = psutil.Process(int(raylet.stdout.readline()))
        files = [tmp_path / f"{name}_ab12" for name in PORTS]
        until(lambda: all(file.exists() for file in files))
        assert [file.read_text() for file in files] == ["-1"] * len(PORTS)
        assert found.is_running()
        raylet.kill()
    until(lambda: not found.is_running() or found.status() == psutil.STATUS_ZOMBIE)


def test_the_names_of_ports_are_rays_own() -> None:
    from ray import _raylet

    own = {getattr(_raylet, name) for name in dir(_raylet) if name.endswith("_PORT_NAME")}
    assert own - set(PORTS) == {"gcs_server_port", "runtime_env_agent_port"}


def test_what_is_replaced_is_put_back() -> None:
    from ray._private import node, parameter, ray_constants, services, utils

    def places() -> list[object]:
        return [
            parameter.RayParams,
            node.Node.start_api_server,
            services._build_python_executable_command_memory_profileable,
            utils.get_dashboard_dependency_error,
        ]

    before = places()
    with bare_ray():
        assert not any(now is was for now, was in zip(places(), before, strict=True))
        given = parameter.RayParams()
        assert (given.no_monitor, given.include_log_monitor) == (True, False)
        build = services._build_python_executable_command_memory_profileable
        assert str(IDLE_AGENT) in build(ray_constants.PROCESS_TYPE_DASHBOARD_AGENT, "s")
        runtime_env = build(ray_constants.PROCESS_TYPE_RUNTIME_ENV_AGENT, "s")
        assert runtime_env == [sys.executable, "-u"]
    assert places() == before


def test_serve_is_imported_without_pandas_which_others_still_get() -> None:
    code = (
        "import sys, controlplane.cluster.bare_serve\n"
        "assert 'ray.serve' in sys.modules and 'pandas' not in sys.modules\n"
        "import pandas\n"
        "assert pandas.DataFrame\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


ASKED_ABOUT_NODES = """
import controlplane.cluster.bare_serve
from controlplane.cluster.one_machine import seldom_nodes
from ray.serve._private.cluster_node_info_cache import DefaultClusterNodeInfoCache as Cache

now_s, asked, away = 0.0, [], True

class Client:
    def __getattr__(self, name):
        def ask(**_):
            asked.append(name)
            if away:
                raise TimeoutError
            return {}
        return ask

seldom_nodes.monotonic = lambda: now_s
cache = Cache(Client())
for _ in range(2):
    try:
        cache.update()
    except TimeoutError:
        pass
assert asked == ["get_all_node_info"] * 2, asked
away = False
Cache._fetch_available_resources_per_node = lambda _: asked.append("free") or {}
asked.clear()
for look in range(8):
    now_s = look / 4
    cache.update()
assert asked == ["get_all_node_info", "free", "get_draining_nodes"] * 2, asked
assert cache.get_alive_nodes() == []
"""


def test_serve_asks_about_nodes_once_a_second() -> None:
    """This holds the place where it asks against the Ray that is installed."""
    subprocess.run([sys.executable, "-c", ASKED_ABOUT_NODES], check=True, timeout=600)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
