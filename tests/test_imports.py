"""Imports go leftwards only: variants <- planner <- workers <- profiler <- controlplane."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ("variants", "planner", "workers", "profiler", "controlplane")
IMPURE = {
    "asyncio", "datetime", "httpx", "os", "pathlib", "random", "ray", "redis", "secrets",
    "socket", "sqlalchemy", "subprocess", "threading", "time",
}  # fmt: skip
RAY_FILES = {
    Path("workers/deployment.py"),
    Path("controlplane/cluster.py"),
    Path("controlplane/app.py"),
}


def imported(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").partition(".")[0])
    return names


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_what_lies_left_of_it(folder: str) -> None:
    right = set(ORDER[ORDER.index(folder) + 1 :])
    wrong = {str(p.relative_to(ROOT)): imported(p) & right for p in files(folder)}
    assert {p: names for p, names in wrong.items() if names} == {}


def test_planner_knows_no_clock_disk_network_or_thread() -> None:
    wrong = {str(p.relative_to(ROOT)): imported(p) & IMPURE for p in files("planner")}
    assert {p: names for p, names in wrong.items() if names} == {}


def test_ray_is_known_in_few_files() -> None:
    found = {p.relative_to(ROOT) for f in ORDER for p in files(f) if "ray" in imported(p)}
    assert found <= RAY_FILES


def test_scikit_learn_stays_in_the_profiler_and_the_example_models() -> None:
    allowed = (ROOT / "profiler", ROOT / "variants" / "zoo")
    found = [
        p for f in ORDER for p in files(f)
        if "sklearn" in imported(p) and not any(p.is_relative_to(a) for a in allowed)
    ]  # fmt: skip
    assert found == []


def test_the_walk_sees_files() -> None:
    assert all(files(folder) for folder in ORDER)
