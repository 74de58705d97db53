"""Commands that look into a catalog by themselves say where there is none, and which one it is."""

from pathlib import Path

import pytest

from tests.controlplane.cli.shell import Shell
from variants.catalog.sql import open_catalog

THERE = "http://127.0.0.1:9"
COMMANDS = [
    ("backup", "b.tar"),
    ("repair",),
    ("artifacts", "unused"),
    ("profile",),
    ("variants", "judge", "digits", "--eval", "rows.npz"),
    ("variants", "build", "digits", "mlp", "--eval", "rows.npz"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_where_no_installation_is_nothing_is_said_to_be_well(
    shell: Shell, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty catalog was made, and a backup of it, and all its profiles were true."""
    monkeypatch.chdir(tmp_path)
    ended = shell(*command)
    assert (ended.code, ended.out) == (1, "")
    assert f"there is no installation in {tmp_path}: MODELLESS_STATE_DIR names" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [*COMMANDS, ("keys", "add", "shop")])
def test_an_installation_elsewhere_is_looked_into_there(
    shell: Shell, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``modelless register`` sends its file there, and the next command spoke of an empty one."""
    monkeypatch.chdir(tmp_path)
    ended = shell(*command, url=THERE)
    assert (ended.code, ended.out) == (1, "")
    told = f"run it on the machine that {THERE} (MODELLESS_URL) is on"
    assert told in ended.err
    assert list(tmp_path.iterdir()) == []


def test_where_two_may_be_meant_it_is_said_which_one_is(shell: Shell, tmp_path: Path) -> None:
    open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}").close()
    ended = shell("artifacts", "unused", url=THERE)
    assert ended.code == 0
    assert ended.err == f"note: this is about {tmp_path}, not about {THERE} (MODELLESS_URL)\n"
    assert shell("artifacts", "unused").err == ""


def test_keys_are_made_before_the_first_start(shell: Shell) -> None:
    assert shell("keys", "add", "shop").code == 0
