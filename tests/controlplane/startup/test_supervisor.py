"""The supervisor's state directory: lock, leftovers, state file. Ray has no part in it."""

import asyncio
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.cluster.ray_processes import ray_dir
from controlplane.live_state import ENDING, opened
from controlplane.settings import Settings, load_settings
from controlplane.startup import supervisor as startup
from controlplane.startup.applications import worker_names
from controlplane.startup.presence import (
    as_running,
    base_url,
    read_state,
    running,
    state_path,
    write_state,
)
from controlplane.startup.processes import deaf_to_hang_ups, end_processes, is_alive
from controlplane.startup.state_directory import clear_files, clear_leftovers, prepare
from controlplane.startup.supervisor import Supervisor, _announce_end
from controlplane.startup.valkey import EmbeddedValkey
from tests.ports import free_port
from variants.errors import ClusterUnavailable, Conflict, InvalidInput, StateUnavailable

STUBBORN = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
)


@contextmanager
def plain_step(_title: str) -> Iterator[Callable[[str], None]]:
    """A step that says nothing."""
    yield lambda _: None


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def settings(tmp_path: Path, port: int) -> Settings:
    return load_settings(state_dir=tmp_path, host="127.0.0.1", port=port, grpc_port=0)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def supervisor(settings: Settings, said: list[str] | None = None) -> Supervisor:
    return Supervisor(settings, plain_step, (said if said is not None else []).append)


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
        "workers": 1,
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
    assert (after.url, after.workers) == ("", 1)


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


def test_two_cannot_have_the_same_directory(settings: Settings) -> None:
    first = supervisor(settings)
    first.claim()
    with pytest.raises(Conflict, match=rf"modelless is starting \(process {os.getpid()}\)"):
        supervisor(settings).claim()
    (settings.run_dir / "ready").write_text(str(os.getpid()))
    with pytest.raises(
        Conflict, match=rf"already running at .* \(process {os.getpid()}\); .*upgrade"
    ):
        supervisor(settings).claim()
    first.stop()
    second = supervisor(settings)
    second.claim()
    second.stop()


def test_a_look_at_the_lock_does_not_make_a_start_fail(settings: Settings) -> None:
    prepare(settings)
    look = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'a+');"
        "fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(0.1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", look, str(settings.run_dir / "up.lock")], stdout=subprocess.PIPE
    ) as looking:
        assert looking.stdout is not None
        looking.stdout.readline()
        keeper = supervisor(settings)
        keeper.claim()
        keeper.stop()


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
    assert said == ["ended 1 processes that an earlier, killed run had left"]
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


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": 1}'])
def test_a_state_file_that_says_nothing_counts_as_none(settings: Settings, text: str) -> None:
    prepare(settings)
    state_path(settings).write_text(text)
    assert read_state(settings) is None
    assert clear_leftovers(settings) == 0


def test_nothing_runs_where_there_is_no_directory(settings: Settings, tmp_path: Path) -> None:
    settings.state_dir = tmp_path / "nowhere"
    assert running(settings) is None
    assert not settings.state_dir.exists()


def test_the_directory_and_its_secrets_are_private(settings: Settings, tmp_path: Path) -> None:
    settings.state_dir = tmp_path / "state"
    prepare(settings)
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in (
            settings.state_dir,
            settings.run_dir,
            settings.secret_path,
            settings.state_dir / "ray.token",
        )
    }
    assert modes == {"state": 0o700, "run": 0o700, "channel.secret": 0o600, "ray.token": 0o600}
    token = (settings.state_dir / "ray.token").read_text()
    prepare(settings)
    assert (settings.state_dir / "ray.token").read_text() == token


def test_a_directory_that_cannot_be_made_is_named(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    settings.state_dir = tmp_path / "file" / "state"
    with pytest.raises(InvalidInput, match="cannot be used: Not a directory"):
        supervisor(settings).claim()


def test_a_path_too_long_for_sockets_is_named(settings: Settings, tmp_path: Path) -> None:
    settings.state_dir = tmp_path / ("x" * 100)
    with pytest.raises(InvalidInput, match="too long for Unix sockets"):
        supervisor(settings).claim()


def test_sigterm_before_ray_ends_a_start_like_ctrl_c(settings: Settings) -> None:
    keeper = supervisor(settings)
    keeper.claim()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    keeper.stop()


def test_a_terminal_that_is_closed_ends_a_start_like_ctrl_c(settings: Settings) -> None:
    signal.signal(signal.SIGHUP, signal.default_int_handler)  # the test's own end is not meant
    keeper = supervisor(settings)
    keeper.claim()
    assert signal.getsignal(signal.SIGHUP) is signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    keeper.stop()


def test_under_nohup_a_terminal_that_is_closed_ends_nothing(settings: Settings) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    keeper = supervisor(settings)
    keeper.claim()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    keeper.stop()


@pytest.fixture
def hearing_hang_ups() -> Iterator[None]:
    """Also where tests run under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hearing_hang_ups")
def test_a_terminal_that_is_closed_leaves_what_was_started_to_be_ended_in_its_turn() -> None:
    with deaf_to_hang_ups(), subprocess.Popen(["sleep", "600"]) as deaf:
        deaf.send_signal(signal.SIGHUP)
        deaf.terminate()
        assert deaf.wait(60) == -signal.SIGTERM
    with subprocess.Popen(["sleep", "600"]) as hears:
        hears.send_signal(signal.SIGHUP)
        assert hears.wait(60) == -signal.SIGHUP


def test_an_interrupt_while_waiting_for_variants_is_no_failure(settings: Settings) -> None:
    keeper = supervisor(settings)
    keeper._interrupt(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        keeper.wait_for_variants(3, {"digits"})


def test_sockets_of_killed_workers_and_old_logs_are_removed(settings: Settings) -> None:
    prepare(settings)
    (settings.run_dir / "w-1.sock").touch()
    ray = ray_dir(settings)
    for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
        (ray / f"session_{day}" / "logs").mkdir(parents=True)
    keeper = supervisor(settings)
    keeper.claim()
    keeper.stop()
    assert list(settings.run_dir.glob("w-*")) == []
    assert [path.name for path in ray.iterdir()] == ["session_2026-01-03"]
    shutil.rmtree(ray)


@pytest.mark.parametrize(("ray_address", "left"), [("", 0), ("auto", 3)])
def test_what_gateways_have_counted_is_forgotten_unless_they_may_go_on(
    settings: Settings, ray_address: str, left: int
) -> None:
    settings = settings.model_copy(update={"ray_address": ray_address})
    prepare(settings)
    for name in ("g-1-1.sock", "g-1-2.json", "g-1-1.answers"):
        (settings.run_dir / name).touch()

    clear_files(settings)

    assert len(list(settings.run_dir.glob("g-*"))) == left


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


async def test_whoever_follows_the_live_state_hears_that_all_is_stopped(live_url: str) -> None:
    heard: list[str] = []

    async def listen() -> None:
        async with opened(live_url) as live:
            async for what in live.changes():
                heard.append(what)

    listening = asyncio.create_task(listen())
    while not heard:
        await _announce_end(live_url)  # again: nobody may listen yet
        await asyncio.sleep(0.01)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert set(heard) == {ENDING}
