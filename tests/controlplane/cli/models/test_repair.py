"""``modelless repair``: what it prints and how it ends."""

from contextlib import closing
from pathlib import Path

import pytest

from controlplane.settings import load_settings
from tests.controlplane.cli.shell import Shell
from tests.controlplane.fleet import register_echo
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog

NAME = "a-v1-echo-fp32"


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the only artifact of a state directory lies."""
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path))
    settings = load_settings(state_dir=tmp_path)
    store = FileArtifactStore(settings.artifacts_dir)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        register_echo(catalog, store, tmp_path, "a")
        [variant] = catalog.snapshot().variants
    return store.place(variant.artifact)


@pytest.mark.usefixtures("artifact")
def test_sound_artifacts_need_no_repair(shell: Shell) -> None:
    ended = shell("repair", "-o", "json", "--progress", "none")
    body = ended.json()
    assert (ended.code, body["checked"], body["repairs"]) == (0, 1, [])
    assert "1 artifacts read in" in shell("repair", "--progress", "none").out


def test_what_is_left_damaged_is_named_and_ends_with_1(shell: Shell, artifact: Path) -> None:
    artifact.unlink()
    ended = shell("repair", "digits", NAME, "-o", "json", "--progress", "none")
    [row] = ended.json()["repairs"]
    assert ended.code == 1
    assert row["artifact"] == artifact.name
    assert row["subjects"] == [f"digits/{NAME}", "source of digits/a-v1"]
    assert (row["repaired"], row["damage"]) == (
        False,
        f"its artifact {artifact.name[:12]} is missing",
    )
    assert "register the same file again" in row["message"]
    assert "register the same file again" in shell("repair", "--progress", "none").out


@pytest.mark.usefixtures("artifact")
def test_an_unknown_task_or_variant_is_said(shell: Shell) -> None:
    assert "no task 'letters'" in shell("repair", "letters").err
    assert "task 'digits' has no variant 'b'; there are: " in shell("repair", "digits", "b").err
