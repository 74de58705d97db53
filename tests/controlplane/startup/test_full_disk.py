"""A state directory on a disk that is really full: one sentence, and nothing half made."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controlplane.access import key_changes
from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.cli.upgrading import upgrade
from controlplane.registry.over_rest.operations import Registrations
from controlplane.settings import Settings, load_settings
from controlplane.startup.checks.state import state_directory
from controlplane.startup.presence import write_state
from controlplane.startup.state_directory import prepare, take_lock
from controlplane.startup.supervisor import Supervisor
from tests.controlplane.builders import DictLive, digits_catalog
from tests.controlplane.startup.supervising.supervised import plain_step
from tests.disks import fill, small_disk
from tests.integration.deployment import CLI, environment
from tests.ports import free_port
from variants.artifacts.store import FileArtifactStore
from variants.disk import ensure_room, full_disk_explained
from variants.errors import StateUnavailable

pytestmark = pytest.mark.slow


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk(16 * 1024) as folder:
        yield folder


@pytest.fixture
def settings(disk: Path) -> Settings:
    return load_settings(
        state_dir=disk / "s", host="127.0.0.1", port=free_port(), grpc_port=0, api_token=""
    )


def test_the_doctor_warns_of_a_disk_that_is_nearly_full() -> None:
    with small_disk(128 * 1024) as disk:
        settings = load_settings(state_dir=disk / "s")
        prepare(settings)
        assert [(one.ok, one.remedy) for one in state_directory(settings)] == [(True, "")]
        with (disk / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, 123 * 2**20)

        [finding] = state_directory(settings)

    assert (finding.ok, finding.remedy) == (True, "free some space on it")
    assert finding.message.startswith("The disk of the state directory has 5 of 128 MiB free")


def supervisor(settings: Settings) -> Supervisor:
    return Supervisor(settings, plain_step, lambda _: None)


def run(settings: Settings, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CLI, *arguments],
        env=environment(settings.state_dir, settings.port),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_secrets_are_made_whole_or_not_at_all(settings: Settings, disk: Path) -> None:
    settings.state_dir.mkdir()
    filler = fill(disk)
    with pytest.raises(StateUnavailable, match=r"cannot be used: No space left .*; free some"):
        prepare(settings)
    assert sorted(path.name for path in settings.state_dir.iterdir()) == ["run"]
    filler.unlink()
    prepare(settings)
    assert len((settings.state_dir / "ray.token").read_text()) == 64


def test_a_token_that_was_cut_off_is_made_again(settings: Settings) -> None:
    settings.state_dir.mkdir()
    (settings.state_dir / "ray.token").touch()
    prepare(settings)
    assert len((settings.state_dir / "ray.token").read_text()) == 64


def test_an_upgrade_needs_room_and_replaces_nothing_without_it(
    settings: Settings, disk: Path
) -> None:
    """It waited for minutes for a worker that never became healthy, and did not say why."""
    prepare(settings)
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock:
        write_state(settings, 7, set(), ray="127.0.0.1:9")
        fill(disk)
        with pytest.raises(StateUnavailable, match=r"has no room for 4 MiB: No space left"):
            upgrade(state_dir=settings.state_dir)


def test_a_start_needs_room_and_lets_go_without_it(settings: Settings, disk: Path) -> None:
    prepare(settings)
    filler = fill(disk)
    with pytest.raises(StateUnavailable, match=r"has no room for 4 MiB: No space left on device"):
        supervisor(settings).claim()
    filler.unlink()
    again = supervisor(settings)
    again.claim()
    again.stop()


@pytest.mark.parametrize("how", [("--detach",), ()], ids=["in the background", "in front"])
@pytest.mark.parametrize("before", [True, False], ids=["used before", "new"])
def test_up_says_one_sentence(
    settings: Settings, disk: Path, how: tuple[str, ...], before: bool
) -> None:
    settings.state_dir.mkdir()
    if before:
        prepare(settings)
    fill(disk)
    ended = run(settings, "up", *how)
    (sentence,) = [line for line in ended.stderr.splitlines() if line and "state in" not in line]
    assert sentence.startswith("error: ")
    assert "No space left on device; free some space on its disk" in sentence
    assert (ended.returncode, ended.stdout) == (1, "")


def test_the_doctor_sees_it(settings: Settings, disk: Path) -> None:
    (fine,) = state_directory(settings)
    fill(disk)
    (found,) = state_directory(settings)
    assert (fine.ok, found.ok) == (True, False)
    assert found.message == f"{disk} has 0.0 MiB free"
    assert "free some space" in found.remedy


def test_a_command_that_cannot_write_says_one_sentence(settings: Settings, disk: Path) -> None:
    settings.state_dir.mkdir()
    model = disk / "model.onnx"
    model.touch()
    fill(disk)
    ended = run(settings, "register", str(model), "--task=t", f"--eval={model}")
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert len(ended.stderr.splitlines()) == 1


async def test_an_upload_that_finds_no_room_is_told_so(settings: Settings, disk: Path) -> None:
    live = DictLive()
    registrations = Registrations(settings=settings, operations=live)
    context = ApiContext(
        catalog=digits_catalog(), store=FileArtifactStore(disk / "artifacts"), settings=settings,
        live=live, registrations=registrations,
    )  # fmt: skip
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(build_api(context)), base_url="http://localhost"
    )
    settings.state_dir.mkdir()
    fill(disk)
    for _ in range(3):  # each gives its place back
        answer = await client.post(
            "/v1/models",
            data={"task": "digits", "name": "mlp"},
            files={"model": b"onnx" * 4096, "evaluation": b"npz"},
        )
        assert answer.status_code == 503
        body = answer.json()
        assert (body["code"], body["retryable"]) == ("STATE_UNAVAILABLE", True)
        assert "No space left on device" in body["error"]
    assert list((settings.state_dir / "uploads").iterdir()) == []
    await registrations.close()


def test_other_failures_pass_through() -> None:
    with pytest.raises(FileNotFoundError), full_disk_explained():
        Path("/nowhere/at/all").read_bytes()


def test_room_is_looked_for_and_given_back(disk: Path) -> None:
    ensure_room(disk, 2**20)
    assert list(disk.iterdir()) == []
    with pytest.raises(StateUnavailable, match="no room for 32 MiB"):
        ensure_room(disk, 32 * 2**20)
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_cannot_be_printed_ends_no_process(stream: str) -> None:
    words = (
        "import sys, logging, workers.process.streams\n"
        "print('a', flush=True); print('b', file=sys.stderr, flush=True)\n"
        "logging.getLogger().error('c'); sys.exit(7)"
    )
    with Path("/dev/full").open("w") as full:
        out, err = (full, None) if stream == "stdout" else (None, full)
        command = [sys.executable, "-c", words]
        ended = subprocess.run(command, stdout=out, stderr=err, timeout=60, check=False)
    assert ended.returncode == 7


def test_keys_that_find_no_room_name_their_file_and_leave_the_old_one(disk: Path) -> None:
    keys = disk / "client-keys"
    key_changes.add(keys, "shop")
    before = keys.read_text()
    fill(disk)
    with pytest.raises(StateUnavailable, match=f"{keys} cannot be written: No space left"):
        key_changes.add(keys, "batch")
    assert (keys.read_text(), list(disk.glob(".*.part"))) == (before, [])
