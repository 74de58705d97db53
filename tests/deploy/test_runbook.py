"""docs/runbook.md says of each alert what it means, and names what there is."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from controlplane.api.reading.event_kinds import EVENT_KINDS
from controlplane.cli.commands.root import app
from controlplane.http_errors import STATUS
from controlplane.settings import Settings
from tests.deploy.files import DEPLOY, ROOT

TEXT = (ROOT / "docs" / "runbook.md").read_text()
PARTS = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE))
"""What stands below the name of each alert."""
ONE_LINE = " ".join(TEXT.split())


def rules() -> dict[str, Any]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return {one["alert"]: one for group in groups for one in group["rules"] if "alert" in one}


def commands() -> list[list[str]]:
    """What the page has one run: the words of each command."""
    lines = re.findall(r"^    (modelless [^#\n]+)", TEXT, re.MULTILINE)
    return [one.split() for one in (*lines, *re.findall(r"`(modelless [^`]+)`", ONE_LINE))]


def test_each_alert_is_there_and_no_other() -> None:
    assert sorted(PARTS) == sorted(rules())


@pytest.mark.parametrize("name", rules())
def test_an_alert_has_its_severity_and_says_more_than_its_summary(name: str) -> None:
    assert PARTS[name].startswith(f"`{rules()[name]['labels']['severity']}`. ")
    assert len(PARTS[name]) > 100


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_what_it_has_one_run_can_be_run(words: list[str]) -> None:
    command: Any = get_command(app)
    rest = words[1:]
    while hasattr(command, "list_commands"):
        assert rest[0] in command.list_commands(None), words
        command = command.get_command(None, rest.pop(0))
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in rest if word.startswith("-")} <= known


def test_what_it_names_is_there() -> None:
    assert set(re.findall(r"--kind (\w+)", ONE_LINE)) <= EVENT_KINDS
    settings = {f"MODELLESS_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"MODELLESS_\w+", TEXT)) <= settings
    codes = set(re.findall(r"`(?!MODELLESS)([A-Z]+_?[A-Z]+)`", TEXT))
    assert codes <= STATUS.keys()


def test_links_lead_somewhere() -> None:
    for place, part in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", TEXT):
        file = Path(ROOT / "docs" / place) if place else ROOT / "docs" / "runbook.md"
        assert file.is_file(), place
        titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in titles}
        assert not part or part in anchors or f'id="{part}"' in file.read_text(), part
