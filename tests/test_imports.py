"""Who may import whom: the five rooms, the sub-packages inside each, and no circle anywhere.

Imports count wherever they stand: at the top of a file, inside a function, and under
``TYPE_CHECKING``.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("variants", "planner", "workers", "profiler", "controlplane")
"""Each room may import those before it."""

ORDER = {
    "variants": (
        "types", "working_memory", "figures", "errors", "metrics", "registry", "entry_points",
        "disk", "container", "core_time", "foreign_files", "model_files", "varint", "onnx_wire",
        "onnx_halves", "images", "buckets", "texts", "slots",
        "artifacts", "catalog", "checks", "zoo", "builders",
    ),
    "planner": (
        "steps", "worker_starts", "zone_demand", "upper_hull", "latency_curve", "latency_table",
        "rhythms", "live_model", "profile_drift", "slow_workers", "interference", "energy",
        "eviction", "types", "planning_settings", "sentences", "forecasting", "selection",
        "canary", "feedback", "zones", "batching", "residency", "solver", "layouts", "reconcile",
        "headroom", "simulation", "doubtful_profiles", "bounds",
        "policies", "simulate", "approximate",
    ),
    "workers": (
        "types", "finite", "process", "runtimes", "channel", "execution", "host", "replica",
        "deployment",
    ),
    "profiler": (
        "evaluation", "timing", "one_thread", "arrival_features", "learned_forecaster",
        "hardware_counters", "fingerprint", "sampling", "sandbox",
    ),
    "controlplane": (
        "timestamps", "wrong_values", "demand_counters", "http_errors", "access", "backoff",
        "slo_parameters", "load_specs", "live_latency", "live_state", "gpus", "slices",
        "given_settings", "settings", "machine", "files", "backups", "client", "views", "dashboard",
        "plots", "building", "profiling", "registry", "cluster", "controller", "residency", "api",
        "gateway", "gateway_replica", "app", "startup", "cli",
    ),
}  # fmt: skip
"""The sub-packages and modules of each room: each may import those before it."""

IMPURE = {
    "asyncio", "datetime", "httpx", "os", "pathlib", "random", "ray", "redis", "secrets",
    "socket", "sqlalchemy", "subprocess", "threading", "time",
}  # fmt: skip
RAY_FILES = {
    Path("workers/replica.py"),
    Path("workers/deployment.py"),
    Path("controlplane/cluster/autoscaling/ray_autoscaler.py"),
    Path("controlplane/cluster/bare_serve.py"),
    Path("controlplane/cluster/head.py"),
    Path("controlplane/cluster/nodes.py"),
    Path("controlplane/cluster/measuring_nodes.py"),
    Path("controlplane/cluster/ray_adapter.py"),
    Path("controlplane/cluster/processes/ray_processes.py"),
    Path("controlplane/cluster/replicas.py"),
    Path("controlplane/cluster/serve_applications.py"),
    Path("controlplane/cluster/one_machine/seldom_nodes.py"),
    Path("controlplane/cluster/one_machine/single_machine.py"),
    Path("controlplane/cluster/one_machine/spare_room.py"),
    Path("controlplane/cluster/one_machine/worker_template.py"),
    Path("controlplane/app.py"),
}
MOST_MODULES = 16
"""In one folder, without its ``__init__``."""


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def module(path: Path) -> str:
    """``planner/selection/select.py`` is ``planner.selection.select``."""
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return dotted.removesuffix(".__init__")


@cache
def modules() -> Mapping[str, Path]:
    return {module(path): path for room in ROOMS for path in files(room)}


@cache
def imported(path: Path) -> frozenset[str]:
    """Every module that a file imports, ours by their full names, others by their first."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found = {name for name in full if name in modules()}
            if len(found) < len(full):
                found.add(node.module or "")
        else:
            continue
        names |= {name if name in modules() else name.partition(".")[0] for name in found}
    return frozenset(names)


def unit(name: str) -> str:
    """The part of a room that a module belongs to: ``planner.selection``."""
    return ".".join(name.split(".")[:2])


def circles(edges: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Sets of modules each of which reaches all others of its set (Tarjan, 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        path.append(name)
        for other in edges[name]:
            if other not in number:
                visit(other)
            if other in path:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            members = set(path[path.index(name) :])
            del path[path.index(name) :]
            if len(members) > 1:
                found.append(members)

    for name in edges:
        if name not in number:
            visit(name)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_lies_left_of_it(room: str) -> None:
    right = set(ROOMS[ROOMS.index(room) + 1 :])
    wrong = {
        str(path.relative_to(ROOT)): {name.partition(".")[0] for name in imported(path)} & right
        for path in files(room)
    }
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_every_part_of_a_room_has_its_place(room: str) -> None:
    parts = {unit(name).partition(".")[2] for name in modules() if name.startswith(f"{room}.")}
    assert parts == set(ORDER[room])


@pytest.mark.parametrize("room", ROOMS)
def test_a_part_of_a_room_imports_only_what_stands_before_it(room: str) -> None:
    place = {f"{room}.{part}": at for at, part in enumerate(ORDER[room])}
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        if unit(name) in place
        for other in imported(path)
        if unit(other) != unit(name) and place.get(unit(other), -1) > place[unit(name)]
    ]
    assert wrong == []


def test_there_is_no_circle_of_imports() -> None:
    edges = {name: imported(path) & modules().keys() for name, path in modules().items()}
    assert circles(edges) == []


def test_circles_are_found() -> None:
    edges = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}
    assert circles(edges) == [{"b", "c"}]


def test_no_folder_is_too_full_to_be_read() -> None:
    folders = {path.parent for path in [*modules().values(), *files("tests")]}
    counts = {
        str(folder.relative_to(ROOT)): sum(
            path.name != "__init__.py" for path in folder.glob("*.py")
        )
        for folder in folders
    }
    del counts["variants/catalog/migrations/versions"]  # to which each change of tables adds one
    assert {name: count for name, count in counts.items() if count > MOST_MODULES} == {}


def test_every_package_is_installed() -> None:
    """``pyproject.toml`` lists the packages one by one, because one of them has another name."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"]) - {"modelless"}
    packages = {module(path) for path in modules().values() if path.name == "__init__.py"}
    assert listed >= packages
    assert {name for name in listed if not (ROOT / name.replace(".", "/")).is_dir()} == set()


def test_every_file_beside_the_code_is_installed() -> None:
    import tomllib

    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = setuptools["package-dir"]
    installed = {
        path
        for package, patterns in setuptools["package-data"].items()
        for pattern in patterns
        for path in (ROOT / folders.get(package, package)).glob(pattern)
    }
    beside = {
        path
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert {str(path.relative_to(ROOT)) for path in beside - installed} == set()


def test_planner_knows_no_clock_disk_network_or_thread() -> None:
    wrong = {str(p.relative_to(ROOT)): imported(p) & IMPURE for p in files("planner")}
    assert {p: names for p, names in wrong.items() if names} == {}


def test_ray_is_known_in_few_files() -> None:
    found = {p.relative_to(ROOT) for room in ROOMS for p in files(room) if "ray" in imported(p)}
    assert found == RAY_FILES


def test_scikit_learn_stays_in_the_profiler_and_the_example_models() -> None:
    allowed = (ROOT / "profiler", ROOT / "variants" / "zoo")
    found = [
        p for room in ROOMS for p in files(room)
        if "sklearn" in imported(p) and not any(p.is_relative_to(a) for a in allowed)
    ]  # fmt: skip
    assert found == []


def test_the_walk_sees_files() -> None:
    assert all(files(room) for room in ROOMS)
