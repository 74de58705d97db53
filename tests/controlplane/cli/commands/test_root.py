"""The help of all commands, and what they import."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from controlplane.cli.commands import root
from tests.controlplane.cli.shell import Shell
from tests.ports import free_port
from tests.variants.catalog_builders import registration, task
from variants.catalog.sql import open_catalog
from variants.types import LengthBucket, OpenAxis, TaskName, TensorSpec


def test_help_names_every_command_on_a_line_of_its_own(shell: Shell) -> None:
    lines = shell("--help").out.splitlines()

    for entries in root.COMMANDS.values():
        for entry in entries:
            assert any(line.split() == [entry.name, *entry.help.split()] for line in lines), entry
    assert max(map(len, lines)) <= 80


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """What one types for every command and every group."""
    yield path
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from leaves(command.get_command(None, name), (*path, name))


@pytest.mark.parametrize("path", list(leaves(get_command(root.app))), ids=" ".join)
def test_a_help_says_things_once_and_in_full(shell: Shell, path: tuple[str, ...]) -> None:
    ended = shell(*path, "--help")

    assert ended.code == 0
    assert ended.out.startswith(f"Usage: {' '.join(('modelless', *path))} [OPTIONS]")
    assert "-h, --help" in ended.out
    ugly = re.findall(
        r"<(?:str|int|float|path|bool)\b.*?>|\{\w+\}|x[<>]=|``|\w\.\.\.$", ended.out, re.M
    )
    assert ugly == []
    assert max(map(len, ended.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("group", "usual"),
    [
        ("tasks", "list"),
        ("variants", "list"),
        ("events", "list"),
        ("keys", "list"),
        ("plan", "get"),
        ("export", ""),
        ("artifacts", ""),
    ],
)
def test_a_group_says_what_it_does_where_no_command_is_named(
    shell: Shell, group: str, usual: str
) -> None:
    said = f"`modelless {group}` is `modelless {group} {usual}`."
    assert (said in shell(group, "--help").out) == bool(usual)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("ev",), ["evict", "events"]),
        (("events", ""), ["list"]),
        (("variants", "g"), ["get"]),
        (("query", "--lat"), ["--latency-ms"]),
    ],
)
def test_a_shell_completes_what_was_typed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...], offered: list[str]
) -> None:
    monkeypatch.setenv("_MODELLESS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("modelless", *typed)))
    monkeypatch.setenv("COMP_CWORD", str(len(typed)))
    assert sorted(shell().out.split()) == sorted(offered)


OFFERED = {
    ("tasks", "get", ""): ["churn", "digits", "reviews", "reviews.16"],
    ("tasks", "get", "d"): ["digits"],
    ("query", "ch"): ["churn"],
    ("pin", "digits", "mlp-v1"): ["mlp-v1-onnx-fp32"],
    ("pin", "churn", ""): ["mlp-v1-onnx-fp32"],
    ("promote", "digits", ""): ["mlp"],
    ("promote", "reviews", ""): ["bert"],
    ("variants", "get", "nowhere", ""): [],
    ("query", "digits", "--variant", "m"): ["mlp-v1-onnx-fp32"],
    ("register", "m.onnx", "--task", "c"): ["churn"],
}


def test_a_shell_completes_names_of_the_catalog(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bucket = LengthBucket(of=TaskName("reviews"), length=16, axes=(OpenAxis(input="ids", axis=0),))
    ids = TensorSpec(name="ids", dtype="int64", shape=(16,))
    short = replace(task("reviews.16"), bucket=bucket, inputs=(ids,))
    catalog = open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    for each in (
        registration(),
        registration(of="churn"),
        registration("bert", of="reviews.16", task=short),
    ):
        catalog.register(each)
    offered = {typed: _offered(shell, monkeypatch, tmp_path, *typed) for typed in OFFERED}
    assert offered == OFFERED


@pytest.mark.parametrize(
    "elsewhere", ["MODELLESS_DATABASE_URL", "MODELLESS_STATE_DIR", "MODELLESS_URL"]
)
def test_names_of_a_catalog_elsewhere_are_not_offered(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, elsewhere: str
) -> None:
    open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}").register(registration())
    assert _offered(shell, monkeypatch, tmp_path, "query", "") == ["digits"]
    url = {"MODELLESS_URL": "http://there"}.get(elsewhere, "")
    if not url:
        monkeypatch.setenv(elsewhere, str(tmp_path / "there"))
    folder = tmp_path / "there" if elsewhere == "MODELLESS_STATE_DIR" else tmp_path
    assert _offered(shell, monkeypatch, folder, "query", "", url=url) == []
    assert not (tmp_path / "there").exists()


def _offered(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, state: Path, *typed: str, url: str = ""
) -> list[str]:
    """What a shell is offered, and nothing is said beside."""
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(state))
    monkeypatch.setenv("_MODELLESS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("modelless", *typed)))
    monkeypatch.setenv("COMP_CWORD", str(len(typed)))
    ended = shell(url=url)
    assert ended.err == ""
    return ended.out.split()


def test_completing_a_name_imports_no_command() -> None:
    script = (
        "import sys\n"
        "from controlplane.cli.commands.root import app\n"
        "try:\n"
        "    app([], prog_name='modelless')\n"
        "finally:\n"
        "    print(sorted(one for one in sys.modules if '.cli.commands.' in one), "
        "file=sys.stderr)\n"
    )
    typed = {"COMP_WORDS": "modelless ", "COMP_CWORD": "1", "_MODELLESS_COMPLETE": "complete_bash"}
    given = os.environ | typed
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=given
    )

    assert ran.stdout.split() == [one.name for part in root.COMMANDS.values() for one in part]
    assert ran.stderr == "['controlplane.cli.commands.root']\n"


def test_help_imports_no_command() -> None:
    script = (
        "import sys\n"
        "from controlplane.cli.commands.root import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'httpx', 'numpy', 'pydantic', 'ray', 'fastapi', 'sqlalchemy'}\n"
        "print(heavy & set(sys.modules), file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stderr == "set()\n"


def test_looking_imports_nothing_of_measuring_and_serving(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from controlplane.cli.main import main\n"
        "try:\n"
        "    main(['tasks', 'list'])\n"
        "finally:\n"
        "    heavy = {'numpy', 'ray', 'fastapi', 'sqlalchemy', 'planner.batching.queue_room'}\n"
        "    here = {name for name, found in sys.modules.items() if found is not None}\n"
        "    print(sorted(here & (heavy | {'httpx', 'httpx._main', 'click'})))\n"
    )
    given = os.environ | {"MODELLESS_STATE_DIR": str(tmp_path), "MODELLESS_PORT": str(free_port())}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=given
    )

    assert (ran.returncode, ran.stdout) == (3, "['httpx']\n"), ran.stderr
