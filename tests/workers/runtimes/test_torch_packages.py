"""Where compiled PyTorch programs are kept; what compiles them is a stand-in here.

``tests/contracts/test_runtime.py`` compiles for real.
"""

import io
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from variants.errors import RuntimeFailed
from workers.runtimes.pytorch import compiling as torch_compile
from workers.runtimes.pytorch.compiling import Order, compile_apart
from workers.runtimes.pytorch.packages import package

pytestmark = pytest.mark.slow


class Compiler:
    """Gives a zip with one library, and counts."""

    def __init__(self, size: int = 100) -> None:
        self.orders: list[Order] = []
        self._size = size

    def __call__(self, order: Order) -> bytes:
        self.orders.append(order)
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as members:
            members.writestr("model/program.so", len(self.orders).to_bytes(1, "big") * self._size)
        return data.getvalue()


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def order(tmp_path: Path) -> Order:
    path = tmp_path / "program.pt2"
    path.write_bytes(b"a program")
    return Order(path=str(path), precision="", device="cpu", shapes=((4,),), dtypes=("float32",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "engines"


def library(program: Path) -> Path:
    return program / "model/program.so"


def test_a_program_is_compiled_once_and_lies_where_it_lay(
    order: Order, folder: Path, compiler: Compiler
) -> None:
    first = package(order, folder, make=compiler)
    file = library(first).stat().st_ino
    again = package(order, folder, make=compiler)
    assert (again, library(again).stat().st_ino, len(compiler.orders)) == (first, file, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"precision": "bfloat16"},
        {"shapes": ((5,),)},
        {"dtypes": ("int64",)},
        {"path": "other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_order_is_compiled_for_itself(
    order: Order, folder: Path, compiler: Compiler, change: dict[str, object], tmp_path: Path
) -> None:
    if "path" in change:
        (tmp_path / "other.pt2").write_bytes(b"another program")
        change = {"path": str(tmp_path / "other.pt2")}
    places = {package(each, folder, make=compiler) for each in (order, replace(order, **change))}  # type: ignore[arg-type]
    assert (len(places), len(compiler.orders)) == (2, 2)


def test_the_same_program_under_another_name_is_not_compiled_again(
    order: Order, folder: Path, compiler: Compiler, tmp_path: Path
) -> None:
    package(order, folder, make=compiler)
    copy = shutil.copy(order.path, tmp_path / "copy.pt2")
    package(replace(order, path=str(copy)), folder, make=compiler)
    assert len(compiler.orders) == 1


@pytest.mark.parametrize("damage", ["changed", "lacking", "added", "no list"])
def test_what_is_not_whole_is_compiled_again(
    order: Order, folder: Path, compiler: Compiler, damage: str
) -> None:
    program = package(order, folder, make=compiler)
    if damage == "changed":
        library(program).write_bytes(b"\x02" * 100)
    elif damage == "lacking":
        library(program).unlink()
    elif damage == "added":
        (program / "model/other.so").write_bytes(b"?")
    else:
        (program / "manifest.json").write_bytes(b"{")
    again = package(order, folder, make=compiler)
    assert (library(again).read_bytes(), len(compiler.orders)) == (b"\x02" * 100, 2)
    assert sorted(path.name for path in again.rglob("*.so")) == ["program.so"]


def test_a_failure_leaves_nothing_that_would_be_taken_for_a_program(
    order: Order, folder: Path, compiler: Compiler
) -> None:
    def fail(_: Order) -> bytes:
        raise RuntimeFailed("compiling failed: no")

    with pytest.raises(RuntimeFailed, match="compiling failed: no"):
        package(order, folder, make=fail)
    package(order, folder, make=compiler)
    assert len(compiler.orders) == 1


def test_the_longest_unused_go_first(order: Order, folder: Path, tmp_path: Path) -> None:
    compiler = Compiler(2**20)
    kept = []
    for index in range(3):
        each = replace(order, shapes=((index + 1,),))
        kept.append(package(each, folder, limit_mib=2.5, make=compiler))
        os.utime(kept[-1], (index, index))
        if index == 1:
            package(replace(order, shapes=((1,),)), folder, limit_mib=2.5, make=compiler)
    assert [path.exists() for path in kept] == [True, False, True]


def test_code_is_not_run_from_a_folder_that_others_can_write_to(
    order: Order, folder: Path, compiler: Compiler
) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(RuntimeFailed, match="compiled programs cannot be kept in"):
        package(order, folder, make=compiler)
    assert compiler.orders == []


def test_compiling_what_is_no_program_fails_with_its_reason(order: Order) -> None:
    """In the process of its own, which says it."""
    with pytest.raises(RuntimeFailed, match="compiling failed: the archive is damaged"):
        compile_apart(order)


def test_without_a_compiler_it_says_so(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compile, "COMPILER", "no-such-compiler")
    with pytest.raises(RuntimeFailed, match="needs a C\\+\\+ compiler, and there is no no-such"):
        compile_apart(order)
