"""Reading PyTorch archives: the same answers as torch's own reader, and nothing run on the way."""

import json
import pickle
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from controlplane.client.exporting.functional import functional
from variants.errors import RuntimeFailed
from workers.runtimes.pytorch.program import Program, read_declared, read_program

pytestmark = pytest.mark.slow


class Attention(nn.Module):  # type: ignore[misc]
    """Sizes that depend on the batch, views, permutations, softmax, layer normalisation."""

    takes = ((6, 8),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x).reshape(x.shape[0], -1)


class Lists(nn.Module):  # type: ignore[misc]
    """Operators that take and give lists of tensors, and one that gives several."""

    takes = ((12,),)

    def forward(self, x: Any) -> Any:
        a, b, c = x.split(4, dim=1)
        largest, where = torch.stack([a, b, c], dim=1).max(dim=1)
        return torch.cat([largest, where.to(x.dtype), *c.unbind(1)[:0], b], dim=1)


class Made(nn.Module):  # type: ignore[misc]
    """Tensors that are made on the way, of types and devices that the program names."""

    takes = ((5,), (5,))

    def forward(self, x: Any, y: Any) -> Any:
        steps = torch.arange(5, dtype=torch.float32, device=x.device) / 5
        ones = torch.full((x.shape[0], 5), 0.5)
        return torch.where(x > y, x + steps, y * ones), (x * 2).clamp(min=0.0, max=float("inf"))


class Buffers(nn.Module):  # type: ignore[misc]
    """Buffers of both kinds, a constant, weights that are tied, an operator in place."""

    takes = ((6,),)

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.linspace(0, 1, 6))
        self.register_buffer("left_out", torch.ones(6), persistent=False)
        self.one = nn.Linear(6, 6, bias=False)
        self.two = nn.Linear(6, 6, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x: Any) -> Any:
        y = self.two(self.one(x + self.kept) * self.left_out)
        y.relu_()
        return y + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


class Tokens(nn.Module):  # type: ignore[misc]
    """Integers in, an embedding, a convolution over text, a recurrent layer."""

    takes = ((9,),)
    integers = True

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(20, 4)
        self.table = nn.Embedding(20, 4)
        self.convolution = nn.Conv1d(4, 3, 3, padding="same")
        self.recurrent = nn.GRU(3, 3, batch_first=True)

    def forward(self, x: Any) -> Any:
        text = self.convolution(self.table(x).transpose(1, 2)).transpose(1, 2)
        states, _ = self.recurrent(text)
        return states.mean(1), self.embedding(x)


MODULES = (Attention, Lists, Made, Buffers, Tokens)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archives")


@pytest.fixture(scope="module")
def saved(folder: Path) -> Callable[[type[Any]], tuple[Any, Path]]:
    """A module, and the archive that torch writes of it."""

    made_of: dict[type[Any], tuple[Any, Path]] = {}

    def save(kind: type[Any]) -> tuple[Any, Path]:
        if kind in made_of:
            return made_of[kind]
        torch.manual_seed(0)
        made = kind().eval()
        batch, path = torch.export.Dim("batch"), folder / f"{kind.__name__}.pt2"
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # recurrent layers sort their weights
            program = functional(
                torch.export.export(
                    made, rows(kind, 3), dynamic_shapes=tuple({0: batch} for _ in kind.takes)
                )
            )
        torch.export.save(program, path)
        return made_of.setdefault(kind, (made, path))

    return save


@pytest.fixture
def archive(saved: Callable[[type[Any]], tuple[Any, Path]], tmp_path: Path) -> "Archive":
    return Archive(saved(Buffers)[1], tmp_path / "changed.pt2")


@contextmanager
def nothing_unpickled() -> Iterator[None]:
    """Unpickling it fails."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (pickle, "load"), (pickle, "loads"), (torch, "load"), (torch.jit, "load"),
            (torch._C, "_pickle_load_obj"),
        ):  # fmt: skip
            patch.setattr(owner, name, fail)
        yield


def rows(kind: type[Any], count: int) -> tuple[Any, ...]:
    draw = np.random.default_rng(count)
    if getattr(kind, "integers", False):
        return tuple(torch.from_numpy(draw.integers(0, 20, (count, *s))) for s in kind.takes)
    return tuple(torch.from_numpy(draw.random((count, *s), dtype=np.float32)) for s in kind.takes)


def ran(program: Program, inputs: tuple[Any, ...]) -> list[Any]:
    with torch.inference_mode():
        return [output.clone() for output in program(*inputs)]


# -- the same answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("count", [1, 7])
def test_a_program_answers_as_the_module_that_it_was_made_of(
    saved: Callable[[type[Any]], tuple[Any, Path]], kind: type[Any], count: int
) -> None:
    made, path = saved(kind)
    inputs = rows(kind, count)
    with torch.inference_mode():
        wanted = made(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    program = read_program(str(path))
    assert (program.takes, program.gives) == (len(inputs), len(wanted))
    for found, want in zip(ran(program, inputs), wanted, strict=True):
        torch.testing.assert_close(found, want)


@pytest.mark.parametrize("kind", MODULES)
def test_in_bf16_all_that_is_floating_is_bf16(
    saved: Callable[[type[Any]], tuple[Any, Path]], kind: type[Any]
) -> None:
    made, path = saved(kind)
    inputs = rows(kind, 4)
    program = read_program(str(path), dtype=torch.bfloat16)
    assert {w.dtype for w in program.weights if w.is_floating_point()} <= {torch.bfloat16}
    cast = tuple(x.bfloat16() if x.is_floating_point() else x for x in inputs)
    with torch.inference_mode():
        wanted = made(*inputs)
    for found, want in zip(
        ran(program, cast), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), want, atol=0.05, rtol=0.05)


def test_weights_that_are_tied_stay_tied(
    saved: Callable[[type[Any]], tuple[Any, Path]],
) -> None:
    program = read_program(str(saved(Buffers)[1]), dtype=torch.bfloat16)
    squares = [weight for weight in program.weights if weight.shape == (6, 6)]
    assert len({weight.data_ptr() for weight in squares}) == 1


# -- nothing is run on the way --------------------------------------------------------------------


class Archive:
    """An archive to change: the members of a good one."""

    def __init__(self, source: Path, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(source) as members:
            self.members = {
                name.partition("/")[2]: members.read(name) for name in members.namelist()
            }

    def json(self, name: str) -> Any:
        return json.loads(self.members[name])

    def write(self, changed: Mapping[str, Any] | None = None) -> str:
        """Save it, some members replaced; what is no text or bytes is written as JSON."""
        with zipfile.ZipFile(self.path, "w") as members:
            for name, content in {**self.members, **(changed or {})}.items():
                plain = isinstance(content, str | bytes)
                members.writestr(f"archive/{name}", content if plain else json.dumps(content))
        return str(self.path)

    def read(self, changed: Mapping[str, Any] | None = None) -> Program:
        """Save it and read it."""
        path = self.write(changed)
        with nothing_unpickled():
            return read_program(path)

    def node(self, target: str) -> Iterator[Any]:
        """The program with its first node of a target, to be changed, and then the change."""
        program = self.json("models/model.json")
        nodes = program["graph_module"]["graph"]["nodes"]
        yield next(each for each in nodes if each["target"] == target)
        yield {"models/model.json": program}


class Touch:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_sample_inputs_are_not_looked_at(archive: Archive, tmp_path: Path) -> None:
    made = pickle.dumps(Touch(tmp_path / "touched"))
    archive.read({"data/sample_inputs/model.pt": made})
    del archive.members["data/sample_inputs/model.pt"]
    archive.read()
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("kept", ["weights", "constants"])
def test_a_pickled_weight_is_refused(archive: Archive, tmp_path: Path, kept: str) -> None:
    path = f"data/{kept}/model_{kept}_config.json"
    config = archive.json(path)
    name, about = next(iter(config["config"].items()))
    about["use_pickle"] = True
    made = pickle.dumps(Touch(tmp_path / "touched"))
    changed = {path: config, f"data/{kept}/{about['path_name']}": made}
    with pytest.raises(RuntimeFailed, match=f"keeps {name} as a pickle, and none is ever loaded"):
        archive.read(changed)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system", "torch.hub.load", "torch.ops.load_library", "torch.load",
        "torch.ops.aten.from_file.default", "torch.ops.aten.save.default", "_operator.attrgetter",
        "torch.ops.aten.linear", "torch.ops.aten.linear.__call__", "builtins.eval", "math.prod",
        "torch.ops.aten.nothing.default", "torch.ops.higher_order.cond",
        "torch.ops.aten.fill_.Scalar", "torch.ops.aten.empty.memory_format",
        "torch.ops.aten.fbgemm_pack_gemm_matrix_fp16.default", "torch.ops.prims.add.default",
    ],
)  # fmt: skip
def test_an_operator_that_does_more_than_compute_is_refused(archive: Archive, target: str) -> None:
    changes = archive.node("torch.ops.aten.linear.default")
    next(changes)["target"] = target
    with pytest.raises(RuntimeFailed, match=r"operator|is not served"):
        archive.read(next(changes))


def test_names_never_become_code(archive: Archive, tmp_path: Path) -> None:
    """The name of a result, of an argument and a text in it, where torch would write them out."""
    evil = f"x = open({str(tmp_path / 'touched')!r}, 'w')\n"
    text = archive.members["models/model.json"].decode()
    renamed = text.replace('"name": "add"', f'"name": {json.dumps(evil)}')
    assert renamed != text
    program = archive.read({"models/model.json": renamed})
    ran(program, rows(Buffers, 2))
    changes = archive.node("torch.ops.aten.linear.default")
    linear = next(changes)
    linear["inputs"].append({"name": evil, "arg": {"as_string": evil}, "kind": 2})
    with pytest.raises(RuntimeError, match="linear"):
        ran(archive.read(next(changes)), rows(Buffers, 2))
    assert not (tmp_path / "touched").exists()


def test_expressions_and_guards_are_not_evaluated(archive: Archive, tmp_path: Path) -> None:
    program = archive.json("models/model.json")
    evil = f"__import__('pathlib').Path({str(tmp_path / 'touched')!r}).touch()"
    program["guards_code"] = [evil]
    for value in program["graph_module"]["graph"]["tensor_values"].values():
        value["sizes"] = [{"as_expr": {"expr_str": evil, "hint": {"as_int": 3}}}]
    ran(archive.read({"models/model.json": program}), rows(Buffers, 2))
    assert not (tmp_path / "touched").exists()


# -- what cannot be served ------------------------------------------------------------------------


def test_a_program_in_training_mode_is_refused(archive: Archive) -> None:
    changes = archive.node("torch.ops.aten.linear.default")
    next(changes)["inputs"].append({"name": "train", "arg": {"as_bool": True}, "kind": 1})
    with pytest.raises(RuntimeFailed, match=r"in training mode; call eval\(\) before exporting"):
        archive.read(next(changes))


def test_a_program_that_writes_into_a_tensor_is_refused(archive: Archive) -> None:
    changes = archive.node("torch.ops.aten.relu.default")
    next(changes)["target"] = "torch.ops.aten.relu_.default"
    with pytest.raises(RuntimeFailed, match="because it changes a tensor in place; export"):
        archive.read(next(changes))


def test_a_weight_outside_of_its_bytes_is_refused(archive: Archive) -> None:
    path = "data/weights/model_weights_config.json"
    config = archive.json(path)
    config["config"]["kept"]["tensor_meta"]["storage_offset"] = {"as_int": 10**6}
    with pytest.raises(RuntimeFailed, match="kept lies outside of its bytes"):
        archive.read({path: config})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"models/model.json": b"{"}, "not understood"),
        ({"models/model.json": "[1]"}, "holds no object"),
        (
            {"models/model.json": {"schema_version": {"major": 9}}},
            "schema 9 of torch.export, not 8",
        ),
        ({"models/model.json": {}}, "not understood: KeyError: 'schema_version'"),
        ({"data/weights/model_weights_config.json": {"config": {}}}, "not understood: KeyError"),
        ({"extra/modelless.json": {"inputs": 3}}, None),
    ],
)
def test_what_is_not_understood_is_one_sentence(
    archive: Archive, change: dict[str, Any], says: str | None
) -> None:
    path = archive.write(change)
    if says is None:
        with pytest.raises(RuntimeFailed, match="not understood: TypeError"):
            read_declared(path)
        return
    with pytest.raises(RuntimeFailed, match=says) as failure:
        read_program(path)
    assert "\n" not in failure.value.message


def test_an_archive_that_is_cut_short_is_damaged(archive: Archive) -> None:
    del archive.members["data/sample_inputs/model.pt"]  # which is an archive too
    path = Path(archive.write())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RuntimeFailed, match="the archive is damaged"):
        read_program(str(path))


def test_an_archive_says_what_its_inputs_and_outputs_are_called(archive: Archive) -> None:
    assert read_declared(archive.write()) == type(read_declared(archive.write()))(None, None)
    said = {"inputs": [{"name": "pixels"}], "outputs": [{"name": "scores"}, {"name": "boxes"}]}
    found = read_declared(archive.write({"extra/modelless.json": said}))
    assert (found.inputs, found.outputs) == (("pixels",), ("scores", "boxes"))
