"""What the doctor says of the state directory and what is kept in it."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from controlplane.access import key_changes
from controlplane.access.client_keys import TOKEN
from controlplane.settings import Settings, load_settings
from controlplane.startup.checks import configuration, services, state
from controlplane.startup.checks.finding import fine, problem, warning
from controlplane.startup.presence import write_state
from controlplane.startup.state_directory import prepare, take_lock
from tests.controlplane.fleet import register_echo
from tests.controlplane.startup.doctor.looked_at import found
from tests.disks import without_rights
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from variants.types import VariantName
from workers.channel.secret import ensure_secret

pytestmark = pytest.mark.slow


def test_a_state_directory_that_is_not_there_will_be_made(
    settings: Settings, state_dir: Path
) -> None:
    assert found(state.state_directory, settings) == [fine("state", f"{state_dir} will be made")]
    assert found(state.secrets, settings) == [fine("secrets", "will be made at the first start")]
    assert not state_dir.exists()


def test_a_used_one_is_fine(settings: Settings, state_dir: Path) -> None:
    prepare(settings)

    assert found(state.state_directory, settings) == [fine("state", str(state_dir))]
    assert found(state.secrets, settings) == [
        fine("secrets", "channel.secret and ray.token, for their owner only")
    ]


@pytest.mark.parametrize("letter", ["x", "ö"])
def test_a_path_too_long_for_sockets_says_by_how_much(tmp_path: Path, letter: str) -> None:
    """The system counts bytes, of which a letter with an accent has two."""
    at_most = 107 - len("/run/w-cpu-256-xxxxxxxx.sock")
    path = tmp_path / (letter + "x" * (at_most + 3 - len(str(tmp_path)) - 1 - len(letter.encode())))

    [finding] = state.state_directory(load_settings(state_dir=path))

    assert finding == problem(
        "state",
        f"the path of {path} is 3 bytes too long for Unix sockets",
        "set MODELLESS_STATE_DIR to a shorter one",
    )


def test_a_file_is_no_state_directory(settings: Settings, state_dir: Path) -> None:
    state_dir.write_text("")

    [finding] = state.state_directory(settings)

    assert (finding.ok, finding.message) == (False, f"{state_dir} is not a directory")


def test_the_state_of_another_user_cannot_be_written(settings: Settings) -> None:
    prepare(settings)
    for folder in (settings.state_dir.parent, settings.state_dir):
        folder.chmod(0o755)
    settings.run_dir.chmod(0o500)
    with without_rights():
        [finding] = state.state_directory(settings)
        assert state.running_here(settings) is None

    closed = settings.run_dir if os.geteuid() else settings.state_dir
    assert finding == problem(
        "state",
        f"{closed} cannot be written",
        "let this user write there, or set MODELLESS_STATE_DIR to another one",
    )
    settings.run_dir.chmod(0o700)


def test_a_secret_that_others_can_read_is_named(settings: Settings) -> None:
    prepare(settings)
    token = settings.state_dir / "ray.token"
    token.chmod(0o644)

    [finding] = state.secrets(settings)

    assert finding.message == f"{token} has mode 0644, so that others can read or write it"
    assert finding.remedy.startswith(f"chmod 600 {token}; ")


def test_a_directory_that_anybody_can_write_is_named(settings: Settings) -> None:
    prepare(settings)
    settings.state_dir.chmod(0o777)

    finding = state.secrets(settings).__next__()

    assert not finding.ok
    assert finding.message.endswith("has mode 0777, so that others can replace what is in it")


def test_a_directory_of_another_user_is_not_to_be_changed_by_this_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a worker's pod: the kubelet makes the volume, as root and with mode 0777."""
    prepare(settings)
    settings.state_dir.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: settings.state_dir.stat().st_uid + 10_001)

    finding = state.secrets(settings).__next__()

    assert (finding.ok, finding.remedy != "") == (True, True)
    assert finding.message == (
        f"{settings.state_dir} has mode 0777, so that others can replace what is in it, and belongs"
        " to another user, who alone can change that"
    )


def test_settings_that_others_can_read_are_warned_of(settings: Settings) -> None:
    prepare(settings)
    file = settings.state_dir / "settings.env"
    file.touch()
    file.chmod(0o644)
    assert [one.remedy for one in state.secrets(settings)] == [""]

    settings.state_dir.chmod(0o755)

    assert [one.remedy for one in state.secrets(settings)] == [f"chmod 600 {file}", ""]


def test_a_file_of_keys_that_is_named_and_not_there_is_a_warning(state_dir: Path) -> None:
    named = load_settings(state_dir=state_dir, client_keys="/nowhere/keys")

    [finding] = found(configuration.keys, named)

    assert finding.ok
    assert finding.message == "/nowhere/keys, which MODELLESS_CLIENT_KEYS names, is not there"
    assert "modelless keys add" in finding.remedy


def test_keys_of_clients_with_which_no_gateway_starts_are_a_problem(settings: Settings) -> None:
    prepare(settings)
    assert found(configuration.keys, settings) == [fine("client keys", "no keys of clients")]
    key_changes.add(settings.client_keys_path, "shop")
    assert found(configuration.keys, settings) == [fine("client keys", "1 key of clients")]
    token = key_changes.rotate_token(settings.client_keys_path, "sixteen characters")
    key_changes.end_rotation(settings.client_keys_path, TOKEN)
    other, known = found(configuration.keys, settings)
    assert other.message == (
        "MODELLESS_API_TOKEN is not the token that `modelless keys rotate api-token` made, which"
        " gateways go by"
    )
    assert (other.ok, other.remedy.startswith("set it to that one, or have")) == (False, True)
    assert known == fine("client keys", "1 key of clients")
    changed = settings.model_copy(update={"api_token": token})
    assert found(configuration.keys, changed) == [fine("client keys", "1 key of clients")]

    settings.client_keys_path.write_text("shop\n")

    [finding] = found(configuration.keys, settings)
    assert not finding.ok
    assert finding.message == (
        f"{settings.client_keys_path}, line 1: a line is a name, a key or its digest, and perhaps"
        " weight=N"
    )


def test_a_process_that_a_killed_run_left_is_named(settings: Settings) -> None:
    prepare(settings)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as left:
        made = psutil.Process(left.pid).create_time()
        write_state(settings, 1, {(left.pid, made), (os.getpid(), 1.0)})
        before = found(state.leftovers, settings)
        left.kill()
        left.wait()

    assert before == [
        problem(
            "leftovers",
            f"a killed run has left 1 process: {left.pid}",
            "`modelless down` ends them",
        )
    ]
    assert found(state.leftovers, settings) == [fine("leftovers", "none")]


def test_artifacts_that_are_what_was_registered_share_a_line(settings: Settings) -> None:
    assert found(services.artifacts, settings) == []
    with closing(open_catalog(settings.catalog_url)) as catalog:
        assert found(services.artifacts, settings) == [fine("artifacts", "none is registered")]
        register_echo(catalog, FileArtifactStore(settings.artifacts_dir), settings.state_dir, "a")
    said: list[str] = []
    assert list(services.artifacts(settings, said.append)) == [
        fine("artifacts", "all 1 are what was registered (0 MiB)")
    ]
    assert said == ["read 0 of 0 MiB"]


def test_a_damaged_artifact_is_named_with_what_to_do(settings: Settings) -> None:
    store = FileArtifactStore(settings.artifacts_dir)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        register_echo(catalog, store, settings.state_dir, "a")
        register_echo(catalog, store, settings.state_dir, "b")
        known = {v.name: v.artifact for v in catalog.snapshot().variants}
    place = store.place(known[VariantName("a-v1-echo-fp32")])
    place.chmod(0o644)
    place.write_bytes(b"A")
    store.delete(known[VariantName("b-v1-echo-fp32")])
    before = sorted(settings.state_dir.rglob("*"))

    findings = found(services.artifacts, settings)

    again = "register the same file again, with the same rows"
    assert [(one.ok, one.message, one.remedy) for one in findings] == [
        (
            False,
            f"digits/a-v1-echo-fp32, source of digits/a-v1: its artifact {place.name[:12]} is "
            "damaged: the 1 bytes in the store are not those that were registered",
            again,
        ),
        (
            False,
            "digits/b-v1-echo-fp32, source of digits/b-v1: its artifact "
            f"{known[VariantName('b-v1-echo-fp32')][:12]} is missing",
            again,
        ),
    ]
    assert sorted(settings.state_dir.rglob("*")) == before


def test_a_secret_that_what_runs_does_not_know_is_told(settings: Settings) -> None:
    """The doctor found the new password right, and said nothing of what runs with the old one."""
    settings.run_dir.mkdir(parents=True)
    ensure_secret(settings.secret_path)
    old = settings.model_copy(update={"database_url": "postgresql://m:old@db/catalog"})
    new = settings.model_copy(update={"database_url": "postgresql://m:new@db/catalog"})
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock:
        write_state(old, os.getpid(), set())
        same, other = list(state.secrets(old)), list(state.secrets(new))

    assert {one.remedy for one in same} == {""}
    [warned] = [one for one in other if one.remedy]
    assert warned == warning(
        "secrets",
        "MODELLESS_DATABASE_URL is not what runs here was started with, which goes on by the old "
        "one",
        "`modelless down` and `modelless up` take it in",
    )
    assert "old@" not in str(other)


def test_a_token_that_was_changed_while_it_runs_is_what_runs_goes_by(settings: Settings) -> None:
    settings.run_dir.mkdir(parents=True)
    ensure_secret(settings.secret_path)
    old = settings.model_copy(update={"api_token": "sixteen characters"})
    token = key_changes.rotate_token(settings.client_keys_path, old.api_token)
    new, other = (old.model_copy(update={"api_token": one}) for one in (token, "some other token"))
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock:
        write_state(old, os.getpid(), set())
        told = [[one.message for one in state.secrets(it) if one.remedy] for it in (new, other)]

    known, unknown = told
    assert known == []
    assert [one.partition(" is ")[0] for one in unknown] == ["MODELLESS_API_TOKEN"]
