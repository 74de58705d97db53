"""The package as it is installed: it is called modelless, is whole, and imports nothing heavy."""

import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import iter_modules

import pytest

import controlplane.client as package
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
HEAVY = (
    "httpx", "numpy", "onnx", "onnxruntime", "ray", "skl2onnx", "sklearn", "sqlalchemy", "torch",
)  # fmt: skip
FOLDERS = ("variants", "planner", "workers", "profiler", "controlplane")


def test_every_package_is_installed() -> None:
    """They are listed by hand in pyproject.toml, because none lies in a folder named modelless."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    lying = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert sorted(listed) == sorted({"modelless", *lying})


def ran(line: str, folder: Path) -> str:
    """What a line of Python prints, run in another folder."""
    done = subprocess.run(
        [sys.executable, "-c", line], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_imported_as_modelless(tmp_path: Path) -> None:
    said = ran(
        "import modelless; print(modelless.export is not None, *modelless.__path__)", tmp_path
    )
    assert said.startswith("True ")
    assert Path(said.removeprefix("True ")).resolve() == Path(package.__file__).parent.resolve()


def test_a_clone_of_that_name_is_not_taken_for_it(tmp_path: Path) -> None:
    """A program may lie beside the clone, whose folder has the name of the package."""
    (tmp_path / "modelless" / "controlplane").mkdir(parents=True)
    assert ran("import modelless; print(modelless.Client.__name__)", tmp_path) == "Client"


def test_importing_it_loads_nothing_heavy(tmp_path: Path) -> None:
    line = f"import modelless, sys; print(sorted(sys.modules.keys() & {set(HEAVY)}))"
    assert ran(line, tmp_path) == "[]"


def test_who_asks_needs_two_packages_and_what_these_need(tmp_path: Path) -> None:
    """So the client can be installed without what serving takes."""
    needed = {
        "anyio", "certifi", "h11", "httpcore", "httpx", "idna", "orjson", "sniffio",
        "typing_extensions",
    }  # fmt: skip
    line = (
        "import asyncio, sys, modelless; from modelless.testing import FakeGateway, answer;"
        "fake = FakeGateway({'t': lambda asked: answer([[1.0]], ['a'])});"
        "fake.client().query('t', [[1.0]]); asyncio.run(fake.async_client().query('t', [[1.0]]));"
        "places = {name: getattr(each, '__file__', None) or '' for name, each in"
        " list(sys.modules.items()) if '.' not in name and not name.startswith('_')};"
        "print(*sorted(name for name, place in places.items() if 'site-packages' in place))"
    )
    of_httpx = {"click", "pygments", "rich"}  # for its own command line, where they are installed
    assert set(ran(line, tmp_path).split()) <= needed | of_httpx


def test_all_of_its_names_are_there() -> None:
    assert sorted(package.__all__) == package.__all__
    assert all(hasattr(package, name) for name in package.__all__)


def test_errors_are_the_ones_that_the_gateway_sends() -> None:
    from controlplane.http_errors import STATUS

    codes = {
        getattr(package, name).code
        for name in package.__all__
        if isinstance(getattr(package, name), type)
        and issubclass(getattr(package, name), package.ModellessError)
    }
    assert set(STATUS) <= codes


@pytest.mark.parametrize("name", ["asking", "exchange", "exporting"])
def test_no_module_hides_behind_a_function(name: str) -> None:
    """``import modelless.x`` would put the module in the place of a function ``modelless.x``."""
    modules = {module.name for module in iter_modules(package.__path__)}
    assert name in modules
    assert not modules & set(package.__all__)


@pytest.mark.slow
def test_the_first_example_says_in_one_line_that_no_gateway_runs() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "ask.py", "--url", url],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"UNREACHABLE: no gateway answers at {url}: ")
    assert len(ran.stderr.splitlines()) == 1
