"""Modules, files and names of the code that documents and docstrings name are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.documents.test_links import ROOT

ROOMS = ("variants", "planner", "workers", "profiler", "controlplane")
IN_ROOMS = "|".join(ROOMS)
DOTTED = re.compile(rf"`((?:{IN_ROOMS})(?:\.\w+)+)`")
"""``planner.eviction.victims`` or ``planner.eviction.victims.room_for``."""
FILE = re.compile(rf"(?<![\w/.])((?:{IN_ROOMS})/[\w/]+\.py)")
IN_FILE = re.compile(rf"`([A-Za-z_]\w*)` (?:in|of) `((?:{IN_ROOMS})/[\w/]+\.py)`")
"""A name, and the file that it is said to be in."""
OLD = ROOT / "docs" / "earlier-changes.md"
"""It names what was."""


def texts() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for folder in ("docs", "deploy", "examples"):
        yield from sorted(path for path in (ROOT / folder).rglob("*.md") if path != OLD)
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


@cache
def names(path: Path) -> frozenset[str]:
    """Whatever a module defines or imports, attributes of its classes too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((each.asname or each.name).split(".")[-1] for each in node.names)
    return frozenset(found)


def is_there(dotted: str) -> bool:
    """Whether it is a package, a module, or a name in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        place, rest = ROOT.joinpath(*parts[:length]), parts[length:]
        module = place.with_suffix(".py") if length > 1 else place / "__init__.py"
        if not module.is_file():
            module = place / "__init__.py"
        if module.is_file():
            return not rest or rest[0] in names(module)
    return False


def missing(text: str) -> list[str]:
    """What a text names that is not there."""
    said = [one for one in DOTTED.findall(text) if not is_there(one)]
    said += [one for one in FILE.findall(text) if not (ROOT / one).is_file()]
    for name, file in IN_FILE.findall(re.sub(r"\s+", " ", text)):
        if (ROOT / file).is_file() and name not in names(ROOT / file):
            said.append(f"{name} in {file}")
    return said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("``planner.eviction`` and ``planner.eviction.victims.room_for``", []),
        ("``planner.eviction.nowhere``", ["planner.eviction.nowhere"]),
        ("``planner.eviction.victims.nothing``", ["planner.eviction.victims.nothing"]),
        ("(`planner/eviction/nowhere.py`)", ["planner/eviction/nowhere.py"]),
        ("`nothing` in\n`planner/eviction/victims.py`", ["nothing in planner/eviction/victims.py"]),
    ],
)
def test_what_is_not_there_is_told(text: str, told: list[str]) -> None:
    assert missing(text) == told


def test_what_texts_and_docstrings_name_is_there() -> None:
    found = {str(path.relative_to(ROOT)): missing(path.read_text()) for path in texts()}
    assert {path: said for path, said in found.items() if said} == {}
