"""The supervisor, without Ray: what it claims, remembers, says and ends."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from controlplane.access import key_changes
from controlplane.access.client_keys import TOKEN
from controlplane.settings import Settings, load_settings
from controlplane.startup import supervisor as startup
from controlplane.startup.applications import worker_names
from controlplane.startup.checks.services import port as doctor_port
from controlplane.startup.presence import as_running, base_url, running, state_path, write_state
from controlplane.startup.processes import end_processes, is_alive
from controlplane.startup.state_directory import clear_leftovers, prepare
from controlplane.startup.supervisor import Supervisor
from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.startup.supervising.supervised import plain_step, supervisor
from tests.ports import free_port
from variants.errors import ClusterUnavailable, Conflict, InvalidInput, StateUnavailable

STUBBORN = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def identity(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    return process.pid, psutil.Process(process.pid).create_time()


def test_whoever_claims_the_directory_is_found_there(settings: Settings) -> None:
    keeper = supervisor(settings)
    keeper.claim()
    state: dict[str, Any] = dict(running(settings) or {})
    assert set(state.pop("secrets")) == {"api_token", "database_url", "redis_url"}
    assert state == {
        "pid": os.getpid(),
        "url": base_url(settings),
        "host": settings.host,
        "port": settings.port,
        "grpc_port": settings.grpc_port,
        "cores": 0,
        "workers": 0,
        "slices": "",
        "tls_cert": "",
        "ray_address": "",
        "ray": "",
        "processes": [],
    }
    keeper.stop()
    assert running(settings) is None
    assert not state_path(settings).exists()


class OneWord:
    """A control store that dies, and Ctrl-C when it is looked at again."""

    def __init__(self) -> None:
        self._news = ["Ray's control store has died"]

    def look(self) -> str:
        if not self._news:
            raise KeyboardInterrupt
        return self._news.pop()


def test_what_is_said_while_it_runs_has_a_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    raylet = socket.socket(socket.AF_UNIX)
    raylet.bind(f"\0raylet-{os.getpid()}")
    raylet.listen()
    monkeypatch.setattr(startup, "raylet_socket", raylet.getsockname().decode)
    monkeypatch.setattr(startup, "watch_control_store", lambda _: OneWord())
    monkeypatch.setattr(startup, "WATCH_S", 0.01)
    monkeypatch.setattr(startup, "REMEMBER_S", 10.0)
    said: list[str] = []
    keeper = supervisor(settings, said)
    keeper.claim()
    try:
        with pytest.raises(KeyboardInterrupt):
            keeper.watch()
    finally:
        keeper.stop()
        raylet.close()
    [line] = said
    time, words = line[:19], line[19:]
    assert datetime.fromisoformat(time) <= datetime.now()
    assert words == " Ray's control store has died"


class KilledTemplate:
    """A template of workers that was killed once."""

    def __init__(self) -> None:
        self.looks = 0

    def renew(self) -> bool:
        self.looks += 1
        return self.looks == 1

    def end(self) -> None:
        pass


class NoNews:
    """A control store that runs."""

    def look(self) -> None:
        pass


def test_a_template_of_workers_that_runs_again_is_told_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = KilledTemplate()
    monkeypatch.setattr(startup, "raylet_socket", lambda: "")
    monkeypatch.setattr(startup, "watch_control_store", lambda _: NoNews())
    monkeypatch.setattr(startup, "WATCH_S", 0.01)
    monkeypatch.setattr(Supervisor, "_ray_has_ended", lambda _: template.looks == 3)
    said: list[str] = []
    keeper = supervisor(settings.model_copy(update={"fork_workers": False}), said)
    keeper.claim()
    monkeypatch.setattr(keeper, "_template", template)
    try:
        with pytest.raises(ClusterUnavailable):
            keeper.watch()
    finally:
        keeper.stop()
    [line] = said
    assert line.endswith(" the process that workers are forked from was killed; it runs again")


def test_what_is_lost_with_the_live_state_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    keeper = supervisor(settings, said)
    valkey = EmbeddedValkey(settings.run_dir)
    valkey.start()
    try:
        assert valkey.pid is not None
        os.kill(valkey.pid, signal.SIGKILL)
        while valkey.reachable():
            pass
        keeper._restart_valkey(valkey)
        assert valkey.reachable()
    finally:
        valkey.stop()
    [line] = said
    assert line.startswith(
        "the embedded Valkey ended by SIGKILL; it was started again, and is filled again but for"
        " the charts of the last hour"
    )


def test_commands_learn_what_the_running_one_was_told(settings: Settings, port: int) -> None:
    told = settings.model_copy(update={"port": port, "cores": 6, "workers": 3})
    keeper = supervisor(told)
    keeper.claim()
    elsewhere = load_settings(state_dir=settings.state_dir, url="http://other:8000")

    found, other = as_running(load_settings(state_dir=settings.state_dir)), as_running(elsewhere)
    keeper.stop()
    after = as_running(load_settings(state_dir=settings.state_dir))

    assert (found.gateway_url, found.kinds[0].name, found.workers) == (base_url(told), "cpu-2", 3)
    assert found.port == port
    # Where commands ask is another thing than for which workers they measure.
    assert (other.url, other.kinds[0].name, other.workers) == ("http://other:8000", "cpu-2", 3)
    assert (after.url, after.workers) == ("", 0)


def test_commands_learn_how_the_running_one_was_told_to_slice_the_machine(
    settings: Settings,
) -> None:
    keeper = supervisor(settings.model_copy(update={"slices": "2xcpu-1,cpu-2"}))
    keeper.claim()

    found = as_running(load_settings(state_dir=settings.state_dir))
    keeper.stop()

    assert [(kind.name, kind.most) for kind in found.kinds] == [("cpu-1", 2), ("cpu-2", 1)]


def test_there_is_an_application_for_each_kind(settings: Settings) -> None:
    sliced = settings.model_copy(update={"slices": "2xcpu-1,cpu-2"})

    assert worker_names(sliced) == ["modelless-worker-cpu-1", "modelless-worker-cpu-2"]


def test_a_token_that_gateways_would_refuse_ends_the_start(settings: Settings) -> None:
    """Else it waits for a minute for gateways that answer it with UNAUTHENTICATED."""
    old = settings.model_copy(update={"api_token": "sixteen characters"})
    key_changes.rotate_token(settings.client_keys_path, old.api_token)
    key_changes.end_rotation(settings.client_keys_path, TOKEN)

    with pytest.raises(InvalidInput, match="MODELLESS_API_TOKEN is not the token that `modelless"):
        supervisor(old).claim()

    assert running(settings) is None


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_taken_port_is_named_and_the_directory_stays_free(
    settings: Settings, port: int, gateways: int
) -> None:
    settings.gateways = gateways
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(Conflict, match=f"127.0.0.1:{port} cannot be used"):
            supervisor(settings).claim()
    assert running(settings) is None
    assert not state_path(settings).exists()


def test_a_port_is_one_installations_also_while_no_gateway_listens_yet(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first = supervisor(settings)
    first.claim()
    folder = tmp_path_factory.mktemp("other")
    other = load_settings(state_dir=folder, host=settings.host, port=settings.port, grpc_port=0)
    elsewhere = other.model_copy(update={"port": free_port()})
    try:
        taken = f"another installation that runs, or starts, has 127.0.0.1:{settings.port}; "
        with pytest.raises(Conflict, match=taken + "choose another port with --port or MODELLESS_"):
            supervisor(other).claim()
        assert running(other) is None
        [finding] = doctor_port(other)
        assert (finding.ok, finding.message) == (False, taken.removesuffix("; "))
        second = supervisor(elsewhere)
        second.claim()
        second.stop()
    finally:
        first.stop()
    then = supervisor(other)
    then.claim()
    then.stop()


def test_a_port_that_was_taken_while_examples_were_made_is_named_before_anything_starts(
    settings: Settings, port: int
) -> None:
    keeper = supervisor(settings)
    keeper.claim()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(Conflict, match=f"127.0.0.1:{port} cannot be used"):
            keeper.start("1 worker")
        assert not keeper.has_begun
    keeper.stop()


def test_an_address_of_another_machine_is_told_with_its_setting(settings: Settings) -> None:
    settings.host = "192.0.2.7"
    with pytest.raises(Conflict, match="; set MODELLESS_HOST to an address of this machine"):
        supervisor(settings).claim()
    assert running(settings) is None


def test_a_taken_port_for_grpc_is_named_with_its_setting(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings.grpc_port = other.getsockname()[1]
        with pytest.raises(Conflict, match="choose another port with MODELLESS_GRPC_PORT"):
            supervisor(settings).claim()
    assert running(settings) is None


def test_what_a_killed_run_left_is_ended(
    settings: Settings, sleeper: subprocess.Popen[bytes]
) -> None:
    prepare(settings)
    write_state(settings, 1, {identity(sleeper)})
    said: list[str] = []
    keeper = supervisor(settings, said)
    keeper.claim()
    assert said == ["ended 1 process that an earlier, killed run had left"]
    sleeper.wait(60)
    keeper.stop()


def test_a_pid_that_belongs_to_somebody_else_now_is_left_alone(
    settings: Settings, sleeper: subprocess.Popen[bytes]
) -> None:
    prepare(settings)
    pid, created = identity(sleeper)
    write_state(settings, 1, {(pid, created - 1_000)})
    assert clear_leftovers(settings) == 0
    assert sleeper.poll() is None
    assert not state_path(settings).exists()


def test_a_full_disk_keeps_nothing_running(settings: Settings) -> None:
    def unheard(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    keeper = Supervisor(settings, plain_step, unheard)
    keeper.claim()
    state_path(settings).with_suffix(".new").mkdir()  # the state cannot be written any more
    with subprocess.Popen(["sleep", "600"]) as started:
        keeper.stop()
        assert started.wait(60) in (-signal.SIGTERM, 0)  # 0: psutil collected its status first
    assert running(settings) is None


def test_what_ignores_sigterm_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert end_processes({identity(process)}, wait_s=0.2) == 1
        assert process.wait(60) in (-signal.SIGKILL, 0)  # 0: psutil collected its status first
        assert not psutil.pid_exists(process.pid)


def test_a_process_that_nobody_waited_for_is_not_alive() -> None:
    process = subprocess.Popen(["true"])
    watched = psutil.Process(process.pid)
    deadline = time.monotonic() + 60
    while watched.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert watched.is_running()
    assert not is_alive(watched)
    assert end_processes({(process.pid, watched.create_time())}, wait_s=1) == 0
    process.wait()


def test_a_live_state_that_does_not_answer_ends_the_start(settings: Settings, port: int) -> None:
    settings.redis_url = f"redis://127.0.0.1:{port}/0"
    with pytest.raises(StateUnavailable, match="does not answer: "):
        supervisor(settings).start("1 worker")


def test_what_the_process_had_started_before_is_left_alone(
    settings: Settings, sleeper: subprocess.Popen[bytes]
) -> None:
    keeper = Supervisor(settings, plain_step, lambda _: None)
    keeper.claim()
    keeper.stop()
    assert sleeper.poll() is None


def test_what_other_nodes_run_outlives_one_whose_ray_has_ended(tmp_path: Path) -> None:
    """Of a cluster; on one machine all of Ray is this one's."""

    class Ended:
        def has_ended(self) -> bool:
            return True

    for address in ("", "10.0.0.1:6379"):
        one = supervisor(load_settings(state_dir=tmp_path, ray_address=address))
        assert not one.is_outlived
        one._raylet = cast(Any, Ended())
        assert one.is_outlived == bool(address)
