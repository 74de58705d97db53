"""docs/reference names every setting, command, option, code and metric, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from controlplane.api.context import ApiContext
from controlplane.api.reading.event_kinds import EVENT_KINDS
from controlplane.api.routes import build_api
from controlplane.cli import outcome
from controlplane.cli.commands.root import COMMANDS, app
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.reports.metrics import GatewayCollector
from controlplane.http_errors import STATUS
from controlplane.settings import Settings, load_settings
from planner.eviction.registry import RULES
from planner.policies.registry import POLICIES
from tests.controlplane.builders import DictLive
from tests.documents.test_links import prose
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.errors import ModellessError
from workers.types import OccurrenceKind

ROOT = Path(__file__).parents[2]
PAGES = [path.read_text() for path in sorted((ROOT / "docs" / "reference").glob("*.md"))]


def section(title: str) -> str:
    """A page of that title, or what stands below that heading of a page, to the next heading."""
    for page in PAGES:
        if page.startswith(f"# {title}\n"):
            return page
        found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        if found:
            return found[1]
    raise AssertionError(f"docs/reference has no section {title!r}")


def rows(title: str) -> dict[str, list[str]]:
    """The rows of a section's tables by their first cell, without its backquotes."""
    found = {}
    for line in section(title).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0].startswith("`"):
            found[cells[0].strip("`")] = cells[1:]
    return found


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All commands that do something, by what one types."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from leaves(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path), command


LEAVES = dict(leaves(get_command(app)))


def options(command: Any) -> list[str]:
    """The long options of a command, in their order, without ``--help``."""
    return [
        next(name for name in parameter.opts if name.startswith("--"))
        for parameter in command.params
        if parameter.opts[0].startswith("-") and "--help" not in parameter.opts
    ]


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_is_documented_with_its_default_and_meaning(name: str) -> None:
    field = Settings.model_fields[name]
    default = "`~/.modelless`" if name == "state_dir" else _shown(field.default)

    assert rows("Settings").get(f"MODELLESS_{name.upper()}") == [default, field.description]


def _shown(value: object) -> str:
    return f"`{value}`" if value != "" else "empty"


def test_no_other_setting_is_documented() -> None:
    known = {f"MODELLESS_{name.upper()}" for name in Settings.model_fields}

    assert set(rows("Settings")) == known


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_is_documented_with_its_options(name: str) -> None:
    [used, meaning] = rows("Commands")[f"modelless {name}"]

    assert re.findall(r"`(--[a-z0-9-]+)`", used) == options(LEAVES[name])
    assert meaning.endswith(".")


def test_no_other_command_is_documented() -> None:
    assert set(rows("Commands")) == {f"modelless {name}" for name in LEAVES}


def test_every_entry_of_the_root_leads_somewhere() -> None:
    entries = {entry.name for part in COMMANDS.values() for entry in part}

    assert {name.split()[0] for name in LEAVES} == entries


def test_no_text_is_half_merged() -> None:
    texts = [*ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.*")]
    marked = [
        str(path.relative_to(ROOT))
        for path in texts
        if path.is_file() and re.search(rb"^(<{7}|>{7}) ", path.read_bytes(), re.MULTILINE)
    ]
    assert marked == []


def test_every_exit_code_is_documented() -> None:
    codes = {
        outcome.DONE,
        outcome.REFUSED,
        outcome.WRONG_INPUT,
        outcome.NOT_RUNNING,
        outcome.INTERRUPTED,
    }

    assert {int(code) for code in rows("Exit codes")} == codes


def errors(base: type[ModellessError] = ModellessError) -> Iterator[type[ModellessError]]:
    """Those of the domain; the command line's own never travel."""
    if base.__module__ == "variants.errors":
        yield base
        for error in base.__subclasses__():
            yield from errors(error)


@pytest.mark.parametrize("code", STATUS)
def test_an_error_code_is_documented_with_its_status(code: str) -> None:
    retryable = {error.retryable for error in errors() if error.code == code}
    status, again, meaning = rows("Error codes")[code]

    assert status == str(STATUS[code])
    assert {again == "yes"} == retryable
    assert meaning.endswith(".")


def test_no_other_error_code_is_documented() -> None:
    assert set(rows("Error codes")) == set(STATUS)


def test_every_path_of_the_control_api_is_documented(tmp_path: Path) -> None:
    context = ApiContext(
        catalog=MemoryCatalog(),
        store=FileArtifactStore(tmp_path / "artifacts"),
        settings=load_settings(state_dir=tmp_path),
        live=DictLive(),
    )
    paths = {path.replace("{version}", "{n}") for path in build_api(context).openapi()["paths"]}

    assert paths == set(re.findall(r"`(/v1/[^`]*)`", section("Control API")))


EVENT_MODULES = (
    "status_events",
    "recorder",
    "succession",
    "sightings",
    "rebuilds",
    "plan_events",
    "storage_watch",
    "core_watch",
    "clock_watch",
    "slo_watch",
)
"""Modules that decide what happened: tuples of kind, subject and message."""


def event_kinds() -> set[str]:
    """Kinds of events, as they are written where one is told: each as one literal word."""
    kinds = {kind.value for kind in OccurrenceKind}
    for path in (ROOT / "controlplane").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name == "Event":
                    kinds |= {words(k.value) for k in node.keywords if k.arg == "kind"}
                elif name in ("tell", "_tell", "_event", "_tell_failure", "happened"):
                    kinds |= {words(argument) for argument in node.args[:1]}
                elif name == "_fail":
                    kinds |= {words(argument) for argument in node.args[1:2]}
            elif isinstance(node, ast.Tuple) and len(node.elts) == 3 and path.stem in EVENT_MODULES:
                kinds.add(words(node.elts[0]))
    return kinds - {""}


def words(node: ast.expr) -> str:
    """A literal that may be a kind; else nothing."""
    value = node.value if isinstance(node, ast.Constant) else ""
    return value if isinstance(value, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*", value) else ""


def test_every_kind_of_event_is_documented_and_may_be_asked_for() -> None:
    assert set(rows("Events")) == event_kinds() == EVENT_KINDS


def test_every_policy_and_eviction_rule_is_documented() -> None:
    commands = section("Commands")
    policies, evictions = re.search(  # type: ignore[union-attr]
        r"Policies are (.*?) and `all`; evictions (.*?)\.", commands, re.DOTALL
    ).groups()
    assert set(re.findall(r"`([\w-]+)`", policies)) == set(POLICIES)
    assert set(re.findall(r"`([\w-]+)`", evictions)) == set(RULES)


def test_every_metric_is_documented_with_its_labels() -> None:
    families: list[Any] = list(GatewayCollector(Counters()).collect())
    exported = {
        f"{family.name}_total" if family.type == "counter" else family.name: family._labelnames
        for family in families
    }
    documented = {
        name: tuple(re.findall(r"`(\w+)`", cells[0])) for name, cells in rows("Metrics").items()
    }

    assert documented == exported


READ_MOST = ("*.md", "docs/*.md", "docs/reference/*.md")


@pytest.mark.parametrize(
    "name", [str(path.relative_to(ROOT)) for each in READ_MOST for path in sorted(ROOT.glob(each))]
)
def test_only_tables_and_code_have_lines_of_more_than_120_characters(name: str) -> None:
    lines = prose(ROOT / name)
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
