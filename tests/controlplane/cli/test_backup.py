"""``modelless backup`` and ``restore``: what they print and how they end."""

import fcntl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from controlplane.backups import reading
from controlplane.settings import load_settings
from controlplane.startup.presence import running
from controlplane.startup.state_directory import take_lock
from tests.controlplane.cli.shell import Shell
from tests.controlplane.fleet import register_echo
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from variants.errors import InvalidInput
from variants.types import DeviceKindName


@pytest.fixture
def store(tmp_path: Path) -> FileArtifactStore:
    """The artifacts of a state directory in which one model is registered."""
    settings = load_settings(state_dir=tmp_path)
    store = FileArtifactStore(settings.artifacts_dir)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        register_echo(catalog, store, tmp_path, "a")
    return store


def said_of(summary: dict[str, Any]) -> str:
    made = f"from a backup that was made {summary['made_at']} by modelless {summary['release']}"
    return made + "; the workers and gateways of that time are not missed"


@pytest.mark.usefixtures("store")
def test_a_backup_is_restored_elsewhere(shell: Shell, tmp_path: Path) -> None:
    file = str(tmp_path / "b.tar")
    made = shell("backup", file, "--progress", "plain")
    assert made.code == 0
    assert f"Saved to {file}: 1 task, 1 artifact" in made.out
    assert "[1/1] artifacts copied" in made.err

    there = tmp_path / "there"
    ended = shell("restore", file, "--state-dir", str(there), "--progress", "none", "-o", "json")
    assert (ended.code, ended.json()["tasks"], ended.json()["missing"]) == (0, 1, [])
    settings = load_settings(state_dir=there)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        [variant] = catalog.snapshot().variants
        [told] = catalog.events(1)
    assert FileArtifactStore(settings.artifacts_dir).sound(variant.artifact).read_text() == "a"
    assert (told.kind, told.message) == ("restored", said_of(ended.json()))
    assert there.stat().st_mode & 0o777 == 0o700

    again = shell("restore", file, "--state-dir", str(there), "--progress", "none")
    assert again.code == 1
    assert "something is registered in the catalog" in again.err


@pytest.mark.usefixtures("store")
def test_workers_of_kinds_that_the_machine_is_not_divided_into_are_not_missed(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = load_settings().kinds[0].name
    with closing(open_catalog(load_settings().catalog_url)) as catalog:
        for kind, count in ((here, 1), ("cpu-99", 2), ("cpu-98", 0)):
            catalog.set_inventory(DeviceKindName(kind), count)
    shell("backup", str(tmp_path / "b.tar"), "--progress", "none")

    ended = shell("restore", str(tmp_path / "b.tar"), "--state-dir", str(tmp_path / "x"))
    said = "2 workers cpu-99 were asked for there and are not wanted here"
    assert f"  {said}: this machine is divided into {here}\n" in ended.out
    with closing(open_catalog(load_settings(state_dir=tmp_path / "x").catalog_url)) as catalog:
        assert catalog.inventory() == {here: 1}
        assert catalog.events(1)[0].message.endswith(f"; {said}")

    monkeypatch.setenv("MODELLESS_RAY_ADDRESS", "auto")  # nodes say which kinds there are
    other = ("--state-dir", str(tmp_path / "y"), "--progress", "none", "-o", "json")
    assert shell("restore", str(tmp_path / "b.tar"), *other).json()["not_here"] == {}
    with closing(open_catalog(load_settings(state_dir=tmp_path / "y").catalog_url)) as catalog:
        assert catalog.inventory() == {here: 1, "cpu-98": 0, "cpu-99": 2}


def test_what_is_not_in_it_is_said_and_ends_with_1(
    shell: Shell, tmp_path: Path, store: FileArtifactStore
) -> None:
    [digest] = store.digests()
    store.delete(digest)

    ended = shell("backup", str(tmp_path / "b.tar"), "--progress", "none")

    assert ended.code == 1
    assert f"the artifact {digest[:12]} was damaged or missing and is not in it" in ended.out


@pytest.mark.usefixtures("store")
def test_nothing_is_restored_while_it_runs(shell: Shell, tmp_path: Path) -> None:
    file, there = tmp_path / "b.tar", tmp_path / "there"
    shell("backup", str(file), "--progress", "none")
    run_dir = load_settings(state_dir=there).run_dir
    run_dir.mkdir(parents=True)
    (run_dir / "up.json").write_text('{"pid": 1, "url": "http://x", "processes": []}')
    with (run_dir / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = shell("restore", str(file), "--state-dir", str(there), "--progress", "none")

    assert ended.code == 1
    assert "modelless runs on" in ended.err
    assert "modelless down" in ended.err


def test_nothing_starts_while_it_is_restored(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    run_dir = load_settings(state_dir=there).run_dir
    run_dir.mkdir(parents=True)
    # What a run that was killed has left is not taken for one that is there.
    (run_dir / "up.json").write_text('{"pid": 1, "url": "http://x", "processes": []}')

    def restoring(*_: object, **__: object) -> None:
        assert take_lock(run_dir / "up.lock") is None
        assert running(load_settings(state_dir=there)) is None
        raise InvalidInput("it was looked at")

    monkeypatch.setattr(reading, "read_backup", restoring)
    ended = shell("restore", "b.tar", "--state-dir", str(there), "--progress", "none")
    assert "it was looked at" in ended.err
    lock = take_lock(run_dir / "up.lock")
    assert lock is not None
    lock.close()


@pytest.mark.parametrize("content", [b"", b"no tar at all", b"\0" * 2000])
def test_another_file_is_no_backup(shell: Shell, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "b.tar"
    file.write_bytes(content)

    ended = shell("restore", str(file), "--state-dir", str(tmp_path / "x"), "--progress", "none")

    assert ended.code == 2
    assert "no backup" in ended.err


def test_a_file_that_is_not_there_is_said(shell: Shell, tmp_path: Path) -> None:
    missing = str(tmp_path / "none.tar")
    ended = shell("restore", missing, "--state-dir", str(tmp_path / "x"), "--progress", "none")

    assert ended.code == 2
    assert f"{missing} cannot be read: No such file or directory" in ended.err
    open_catalog(f"sqlite:///{tmp_path / 'x' / 'catalog.db'}").close()
    nowhere = shell("backup", str(tmp_path / "no" / "b.tar"), "--progress", "none")
    assert nowhere.code == 2
    assert "cannot be written: No such file or directory" in nowhere.err


@pytest.mark.usefixtures("store")
def test_what_killed_ones_have_left_is_removed_by_the_next(shell: Shell, tmp_path: Path) -> None:
    folder, there = tmp_path / "backups", tmp_path / "there"
    folder.mkdir()
    left, written = folder / ".b.tar.1234567", folder / ".b.tar.7654321"
    left.write_bytes(b"half of it")
    other = folder / ".b.tar.swp"
    other.touch()
    with written.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert shell("backup", str(folder / "b.tar"), "--progress", "none").code == 0
    assert {one.name for one in folder.iterdir()} == {"b.tar", written.name, other.name}

    scratch = load_settings(state_dir=there).run_dir / "restore-killed"
    scratch.mkdir(parents=True)
    (scratch / "rows").touch()
    ended = shell("restore", str(folder / "b.tar"), "--state-dir", str(there), "--progress", "none")
    assert (ended.code, scratch.exists()) == (0, False)
