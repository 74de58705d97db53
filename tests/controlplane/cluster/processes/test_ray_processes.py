"""What is said where a Ray cluster cannot be joined. Ray is not started."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from controlplane.cluster.processes.named_cluster import answers_in_time, not_joined, refuses_token
from controlplane.cluster.processes.ray_environment import (
    LOGS,
    SCARCE_MEMORY,
    SELDOM,
    ray_dir,
    ray_environment,
    token_path,
)
from controlplane.cluster.processes.ray_processes import found
from controlplane.settings import Settings, load_settings
from tests.ports import free_port
from variants.errors import ClusterUnavailable

ROOT = Path(__file__).parents[4]
RAY_SAYS = RuntimeError("Failed to connect to Ray cluster")


def settings(tmp_path: Path, address: str) -> Settings:
    return load_settings(state_dir=tmp_path, ray_address=address)


def test_where_nothing_listens_the_address_is_doubted(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert not_joined(settings(tmp_path, address), RAY_SAYS) == (
        f"the Ray cluster at {address} could not be joined: {RAY_SAYS};"
        " nothing listens there: is it the address of `ray start --head`?"
    )


def test_a_cluster_is_joined_only_where_something_listens(tmp_path: Path) -> None:
    """Ray would try again for as long as queries may go on without its control store: a day."""
    nowhere = settings(tmp_path, f"127.0.0.1:{free_port()}")
    assert not answers_in_time(nowhere, 0.0)
    assert answers_in_time(settings(tmp_path, "auto"), 0.0)
    with socket.create_server(("127.0.0.1", 0)) as head:
        assert answers_in_time(settings(tmp_path, f"127.0.0.1:{head.getsockname()[1]}"), 0.0)


def test_what_auto_leads_to_is_looked_at_before_it_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray notes the last cluster of a machine, which may have gone."""
    port = free_port()
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    where = found(settings(tmp_path, "auto"))
    assert where.ray_address.endswith(f":{port}")
    assert not answers_in_time(where, 0.0)
    assert found(settings(tmp_path, "127.0.0.1:1")).ray_address == "127.0.0.1:1"
    assert found(settings(tmp_path, "")).ray_address == ""


def test_where_auto_leads_nowhere_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_: str) -> str:
        raise ConnectionError("Could not find any running Ray instance")

    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", nothing)
    with pytest.raises(ClusterUnavailable, match=r"no Ray runs on this machine, where MODELLESS_R"):
        found(settings(tmp_path, "auto"))


def test_the_logs_of_one_machine_are_kept_small_unless_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = load_settings(state_dir=tmp_path)
    monkeypatch.delenv("RAY_event_stats_print_interval_ms", raising=False)
    monkeypatch.setenv("RAY_ROTATION_MAX_BYTES", "1000")
    told = ray_environment(alone)
    assert (told["RAY_event_stats_print_interval_ms"], told["RAY_ROTATION_MAX_BYTES"]) == (
        "3600000",
        "1000",
    )
    assert not LOGS.keys() & ray_environment(settings(tmp_path, "127.0.0.1:6379"))


def test_one_machine_has_ray_do_seldom_what_it_needs_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SELDOM:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_local_fs_monitor_interval_ms", "100")
    told = ray_environment(load_settings(state_dir=tmp_path))
    assert told.items() >= (SELDOM | {"RAY_local_fs_monitor_interval_ms": "100"}).items()
    assert not SELDOM.keys() & ray_environment(settings(tmp_path, "127.0.0.1:6379"))


def test_the_ray_that_is_installed_knows_what_it_is_told_on_one_machine() -> None:
    """A setting that a new release does not have any more would be ignored without a word."""
    import ray
    from ray.serve._private import constants

    raylet = (Path(ray.__file__).parent / "core/src/ray/raylet/raylet").read_bytes()
    of_serve = {name for name in SELDOM if name.startswith("RAY_SERVE_")}
    of_ray = {*SELDOM.keys() - of_serve, *SCARCE_MEMORY}
    assert not [name for name in of_ray if name.encode() not in raylet]
    assert not [name for name in of_serve if not hasattr(constants, name)]


SIGTERM_WHILE_RAY_STARTS = """
import os, signal
from ray import _raylet
from ray._private import services, utils, worker
from controlplane.cluster.processes.ray_processes import sigterm_kept

got, seen = [], []

def core():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Ray's core: this would end the process
    os.kill(os.getpid(), signal.SIGTERM)
    return "made"

def process():
    seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    return "started"

_raylet.CoreWorker, services.ConsolePopen = core, process
signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
with sigterm_kept():
    utils.set_sigterm_handler(signal.SIG_DFL)
    # By the names under which `ray.init` makes them.
    assert (services.ConsolePopen(), seen) == ("started", [mask])
    assert (worker.ray._raylet.CoreWorker(), got) == ("made", [])
assert got == [signal.SIGTERM]
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
print("kept")
"""


def test_sigterm_stays_with_whom_it_belonged_to_while_ray_starts() -> None:
    """Ray's core would print a trace and abort, and leave what was started. In a process of its
    own, which has one thread, as the one that starts an installation."""
    done = subprocess.run(
        [sys.executable, "-c", SIGTERM_WHILE_RAY_STARTS],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=600,
    )  # fmt: skip
    assert done.stdout.strip().endswith("kept")


def test_where_something_listens_the_token_is_doubted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        told = not_joined(settings(tmp_path, address), RAY_SAYS)
    assert f"with the token in {tmp_path / 'ray.token'} " in told


@pytest.fixture
async def head() -> AsyncIterator[str]:
    """The address of what knows one token, as Ray's control store does."""

    async def cluster_id(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        given = dict(context.invocation_metadata() or ())
        if given.get("authorization") != "Bearer right":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
        return b""

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(cluster_id)
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "ray.rpc.NodeInfoGcsService", {"GetClusterId": handler}
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_token_that_the_cluster_does_not_know_is_told_at_once(
    tmp_path: Path, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)

    async def refused() -> bool:
        return await asyncio.to_thread(refuses_token, settings(tmp_path, head))

    assert await refused()  # there is none
    (tmp_path / "ray.token").write_text("wrong")
    assert await refused()
    (tmp_path / "ray.token").write_text("right\n")
    assert not await refused()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("wrong")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(elsewhere))
    assert await refused()
    assert str(elsewhere) in not_joined(settings(tmp_path, head), RAY_SAYS)


def test_a_cluster_that_others_started_is_joined_with_the_token_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/etc/ray/token")
    assert token_path(settings(tmp_path, "head:6379")) == Path("/etc/ray/token")
    assert token_path(settings(tmp_path, "")) == tmp_path / "ray.token"


def test_nobody_who_does_not_answer_has_refused_a_token(tmp_path: Path) -> None:
    assert not refuses_token(settings(tmp_path, f"127.0.0.1:{free_port()}"))
    assert not refuses_token(settings(tmp_path, "auto"))


@pytest.mark.parametrize("address", ["auto", "ray://head:10001"])
def test_other_addresses_are_told_with_what_ray_says(tmp_path: Path, address: str) -> None:
    assert not_joined(settings(tmp_path, address), RAY_SAYS) == (
        f"the Ray cluster at {address} could not be joined: {RAY_SAYS}"
    )


@pytest.mark.parametrize(
    ("path", "inside"), [("/srv/m", True), ("/srv/größe", False), ("/s" * 20, False)]
)
def test_ray_has_a_folder_elsewhere_where_its_own_could_not_hold_its_sockets(
    path: str, inside: bool
) -> None:
    """Ray writes paths in ASCII."""
    found = ray_dir(load_settings(state_dir=Path(path)))
    assert str(found).isascii()
    assert found.is_relative_to(path) == inside


def test_on_one_machine_ray_ends_nobody_for_want_of_memory_unless_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_worker_oom_score_adjustment", "500")
    told = ray_environment(load_settings(state_dir=tmp_path))
    assert told["RAY_memory_monitor_refresh_ms"] == "0"
    assert told["RAY_worker_oom_score_adjustment"] == "500"
    assert not SCARCE_MEMORY.keys() & ray_environment(settings(tmp_path, "127.0.0.1:6379"))
