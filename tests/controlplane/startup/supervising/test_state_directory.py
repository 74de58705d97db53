"""The state directory: whose it is, and what is kept and removed in it."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controlplane.cluster.processes.ray_environment import ray_dir
from controlplane.settings import Settings
from controlplane.startup.presence import lock_path, read_state, running, state_path, write_state
from controlplane.startup.state_directory import clear_files, clear_leftovers, prepare
from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.startup.supervising.supervised import supervisor
from tests.disks import small_disk, without_rights
from variants.errors import Conflict, InvalidInput


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


def test_what_another_user_runs_cannot_be_told(settings: Settings) -> None:
    prepare(settings)
    for folder in (settings.state_dir.parent, settings.state_dir):
        folder.chmod(0o755)
    settings.run_dir.chmod(0 if os.geteuid() else 0o700)
    try:
        with pytest.raises(InvalidInput, match="cannot be looked into"), without_rights():
            running(settings)
    finally:
        settings.run_dir.chmod(0o700)


def test_what_runs_is_found_on_a_disk_that_became_read_only(settings: Settings) -> None:
    with small_disk(1024) as disk:
        there = settings.model_copy(update={"state_dir": disk})
        prepare(there)
        write_state(there, 7, set())
        lock_path(there).touch()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with lock_path(there).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert (running(there) or {}).get("pid") == 7
        assert running(there) is None
        assert clear_leftovers(there) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": 1}'])
def test_a_state_file_that_says_nothing_counts_as_none(settings: Settings, text: str) -> None:
    prepare(settings)
    state_path(settings).write_text(text)
    assert read_state(settings) is None
    assert clear_leftovers(settings) == 0


def test_a_valkey_that_nobody_could_write_down_is_ended(settings: Settings) -> None:
    """Whoever started it was killed before it could."""
    prepare(settings)
    with TemporaryDirectory() as elsewhere:
        left, other = EmbeddedValkey(settings.run_dir), EmbeddedValkey(Path(elsewhere))
        try:
            left.start()
            other.start()
            assert clear_leftovers(settings) == 1
            assert not left.alive()
            assert other.alive()
            assert clear_leftovers(settings) == 0
        finally:
            left.stop()
            other.stop()


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


def test_a_run_directory_that_was_copied_without_its_mode_is_private_again(
    settings: Settings,
) -> None:
    """Who could enter it could have a gateway's socket handed over, or ask the live state."""
    settings.run_dir.mkdir(parents=True)
    settings.run_dir.chmod(0o777)
    prepare(settings)
    assert settings.run_dir.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_cannot_be_made_is_named(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    settings.state_dir = tmp_path / "file" / "state"
    with pytest.raises(InvalidInput, match="cannot be used: Not a directory"):
        supervisor(settings).claim()


def test_a_path_too_long_for_sockets_is_named(settings: Settings, tmp_path: Path) -> None:
    settings.state_dir = tmp_path / ("x" * 100)
    with pytest.raises(InvalidInput, match="too long for Unix sockets"):
        supervisor(settings).claim()


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
