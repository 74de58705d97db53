"""``modelless.export`` of PyTorch modules: what is in the file, what answers, what is refused."""

import copy
import json
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from controlplane.client import Exported, ExportError, export
from controlplane.client.exporting.onnx_file import OnnxAnswers
from controlplane.client.exporting.torch_archive import refuse_pickles
from tests.controlplane.client.modules import DATA, Does, Images, Words
from variants.checks.archive.archive_check import check_archive, extract_onnx
from variants.types import TensorSpec
from workers.runtimes.pytorch.program import read_program

pytestmark = pytest.mark.slow

PIXELS = torch.rand(1, 1, 6, 6, generator=torch.Generator().manual_seed(1))
ROWS = torch.rand(3, 4, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def images() -> Images:
    torch.manual_seed(0)
    return Images()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@dataclass(frozen=True)
class State:
    """All that a module is."""

    attributes: list[dict[str, Any]]
    tensors: dict[str, Any]

    @classmethod
    def of(cls, module: nn.Module) -> "State":
        return cls(
            attributes=[dict(vars(part)) for part in module.modules()],
            tensors={name: value.clone() for name, value in module.state_dict().items()},
        )


@pytest.fixture(scope="module")
def before(images: Images) -> State:
    """A module in training mode, but for one part."""
    images.body[1].eval()
    images.last = "mine"
    return State.of(images)


@pytest.fixture(scope="module")
def exported(images: Images, before: State, folder: Path) -> Exported:
    """Exported with one example row."""
    return export(images, PIXELS, folder / "images.pt2")


def answer(module: nn.Module, *inputs: Any) -> Any:
    """In evaluation mode, without touching the module."""
    with torch.no_grad():
        return copy.deepcopy(module).eval()(*inputs)


@pytest.fixture(scope="module")
def words(folder: Path) -> tuple[Words, Exported]:
    torch.manual_seed(0)
    module = Words().eval()
    inputs = {"mask": torch.ones(2, 5), "ids": torch.arange(10).view(2, 5)}
    return module, export(module, inputs, folder / "words.pt2", input_names=["weights", "word.ids"])


def onnx_of(exported: Exported, folder: Path) -> onnxruntime.InferenceSession:
    target = folder / "model.onnx"
    extract_onnx(exported.path, target)
    return onnxruntime.InferenceSession(target)


def test_writing_in_place_becomes_a_result_and_unset_memory_zeros(folder: Path) -> None:
    def forward(_: Any, x: Any) -> Any:
        held = x.new_empty(x.shape)
        held[:, :2] = x[:, :2].relu_()
        held[:, 2:] = 0.0
        return held.add_(1)

    torch.manual_seed(0)
    module = Does(forward)
    exported = export(module, ROWS, folder / "in_place.pt2")
    with zipfile.ZipFile(exported.path) as archive:
        program = json.loads(archive.read("archive/models/model.json"))
    called = {node["target"] for node in program["graph_module"]["graph"]["nodes"]}
    assert "torch.ops.aten.linear.default" in called
    assert not [name for name in called if "_." in name or "empty" in name]
    found = read_program(str(exported.path))
    with torch.no_grad():
        torch.testing.assert_close(found(ROWS)[0], answer(module, ROWS))


# -- what it gives ------------------------------------------------------------------------------


def test_it_says_what_it_wrote(exported: Exported, folder: Path) -> None:
    assert exported == Exported(
        path=folder / "images.pt2",
        inputs=(TensorSpec(name="pixels", dtype="float32", shape=(1, 6, 6)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(3,)),),
        rows=2,
        difference=exported.difference,
    )
    assert 0 <= exported.difference < 1e-6


def test_the_archive_has_exactly_the_members_of_the_layout(exported: Exported) -> None:
    with zipfile.ZipFile(exported.path) as archive:
        names = {re.sub(r"weight_\d+$", "weight_N", name) for name in archive.namelist()}
        declared = json.loads(archive.read("archive/extra/modelless.json"))
        samples = archive.getinfo("archive/data/sample_inputs/model.pt")
    assert {name.removeprefix("archive/") for name in names} == {
        "models/model.json", "data/weights/model_weights_config.json", "data/weights/weight_N",
        "data/constants/model_constants_config.json", "data/constants/tensor_0",
        "data/sample_inputs/model.pt", "extra/modelless.json", "modelless/model.onnx",
        "archive_format", "archive_version", "byteorder", ".data/version", ".data/serialization_id",
    }  # fmt: skip
    assert samples.file_size == 0
    assert declared == {
        "format": 1,
        "torch": torch.__version__,
        "opset": 20,
        "inputs": [{"name": "pixels", "dtype": "float32", "shape": [1, 6, 6]}],
        "outputs": [{"name": "scores", "dtype": "float32", "shape": [3]}],
    }


def test_the_server_takes_it(exported: Exported) -> None:
    found = check_archive(exported.path)
    assert (found.inputs, found.outputs) == (exported.inputs, exported.outputs)


@pytest.mark.parametrize("names", [("ids", "embedding"), ("linear", "mean"), ("mean", "linear")])
def test_inputs_and_outputs_may_be_called_as_operators_are(
    folder: Path, names: tuple[str, str]
) -> None:
    """PyTorch's exporter calls values within so, and gave a file that nothing reads."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(10, 4), Does(lambda _, x: x.mean(1)), nn.Linear(4, 2))
    ids = torch.arange(12).reshape(2, 6) % 10
    given, answer = names
    exported = export(
        module.eval(), ids, folder / f"{given}.pt2", input_names=[given], output_names=[answer]
    )
    assert [spec.name for spec in (*exported.inputs, *exported.outputs)] == [given, answer]
    assert exported.difference < 1e-5


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_program_and_onnx_answer_any_batch_as_the_module_does(
    exported: Exported, images: Images, tmp_path: Path, rows: int
) -> None:
    pixels = torch.rand(rows, 1, 6, 6)
    wanted = answer(images, pixels).numpy()
    with torch.no_grad():
        (program,) = torch.export.load(exported.path).module()(pixels)
    (scores,) = onnx_of(exported, tmp_path).run(["scores"], {"pixels": pixels.numpy()})
    np.testing.assert_allclose(program.numpy(), wanted, atol=1e-6)
    np.testing.assert_allclose(scores, wanted, atol=1e-6)


def test_inputs_and_outputs_have_the_names_that_were_given(
    words: tuple[Words, Exported], tmp_path: Path
) -> None:
    module, exported = words
    assert [(spec.name, spec.dtype) for spec in exported.inputs] == [
        ("weights", "float32"), ("word.ids", "int64"),
    ]  # fmt: skip
    assert [(spec.name, spec.dtype, spec.shape) for spec in exported.outputs] == [
        ("logits", "float32", (2,)), ("best", "int64", ()),
    ]  # fmt: skip
    ids, mask = torch.randint(0, 20, (3, 5)), torch.tensor([[1.0, 1, 1, 0, 0]]).repeat(3, 1)
    with torch.no_grad():
        wanted = module(ids, mask)
        by_program = torch.export.load(exported.path).module()(mask, ids)
    by_onnx = onnx_of(exported, tmp_path).run(
        ["logits", "best"], {"weights": mask.numpy(), "word.ids": ids.numpy()}
    )
    for answers in (by_program, by_onnx):
        np.testing.assert_allclose(answers[0], wanted["logits"], atol=1e-6)
        np.testing.assert_array_equal(answers[1], wanted["best"])


def test_the_same_model_gives_the_same_bytes_and_a_compiled_one_too(
    exported: Exported, images: Images, tmp_path: Path
) -> None:
    compiled = torch.compile(copy.deepcopy(images), backend="eager")
    again = export(compiled, (PIXELS,), tmp_path / "another-name.pt2")
    assert again.path.read_bytes() == exported.path.read_bytes()


def test_nothing_of_the_users_machine_is_in_the_file(exported: Exported) -> None:
    data = exported.path.read_bytes()
    assert str(Path(__file__).parent).encode() not in data
    assert str(Path(torch.__file__).parent).encode() not in data
    assert PIXELS.numpy().tobytes() not in data
    # A buffer and a constant are rows of it; only they are kept.
    kept = [row for row in range(len(DATA)) if DATA[row].numpy().tobytes() in data]
    assert kept == [3, 7]


def test_the_module_is_left_as_it_was(exported: Exported, images: Images, before: State) -> None:
    now = State.of(images)
    assert now.attributes == before.attributes
    assert [part.training for part in images.modules()].count(False) == 1
    assert now.tensors.keys() == before.tensors.keys()
    assert all(torch.equal(value, before.tensors[name]) for name, value in now.tensors.items())


def test_without_onnx_runtime_the_answers_are_compared_all_the_same(
    exported: Exported, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract_onnx(exported.path, tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    answers = OnnxAnswers((tmp_path / "model.onnx").read_bytes())({"pixels": PIXELS.numpy()})
    wanted = answer(images, PIXELS).numpy()
    np.testing.assert_allclose(answers["scores"], wanted, atol=1e-6)


# -- what it refuses ----------------------------------------------------------------------------


def counted(module: Does, x: Any) -> Any:
    module.seen.add_(1)
    return x + module.seen


def replaced(module: Does, x: Any) -> Any:
    module.seen = module.seen + 1
    return x


def branching(_: Does, x: Any) -> Any:
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (lambda _, x: x.view(3, 4) * 2, "forward is bound to the 3 rows of the examples; take the"),
        (lambda _, x: x + torch.ones(3, 4), "forward is bound to the 3 rows of the examples"),
        (lambda _, x: -x if x.shape[0] % 2 == 0 else x, "forward does not take every number of"),
        (branching, r"forward decides by the values of a tensor at test_torch_export.py:\d"),
        (lambda _, x: x * x.max().item(), "output 'scores' of a row depends on the other rows"),
        (lambda _, x: nn.functional.dropout(x), r"forward drops out at random in evaluation mode"),
        (lambda _, x: x + torch.rand_like(x), r"forward draws random numbers \(aten.rand_like"),
        (lambda _, x: x.softmax(0), "output 'scores' of a row depends on the other rows"),
        (lambda _, x: x - x.mean(0), "output 'scores' of a row depends on the other rows"),
        (lambda _, x: x.cumsum(0), "output 'scores' of a row depends on the other rows"),
        (counted, "forward changes the module or its inputs; an answer may depend on its inputs"),
        (replaced, "forward changes the module or its inputs"),
        (lambda _, x: x[:2], r"output 'scores' has shape \(2, 4\) for 3 rows; it needs one row"),
        (lambda _, x: x.sum(), "output 'scores' is a scalar for 3 rows"),
        (lambda _, x: x[x[:, 0] > -100], "output 'scores' does not have one row for each row of"),
        (lambda _, x: (x, None), "output 'output_1' is a NoneType, not a tensor"),
        (lambda _, x: {"a": x, "b": [x]}, "output 'b' is a list, not a tensor"),
        (lambda _, x: x.half(), "output 'scores' is float16; it must be one of float32, float64"),
        (lambda _, x: x * float("nan"), "output 'scores' is NaN for some example inputs"),
        (lambda _, x: {"x": x}, "'x' names an input and an output; give other names"),
        (lambda _, x: x.view(5, 5), r"the module does not run on the example inputs: shape '\[5"),
        (lambda _, x: torch.tensor(x.detach().numpy()), "torch.export cannot trace the module: "),
        (lambda _, x: torch.linalg.eigvals(x.unsqueeze(1) * x.unsqueeze(2)).real,
         "the module has no ONNX form: No ONNX function found for .*aten.linalg_eig"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_served_is_refused(
    tmp_path: Path, what: Any, sentence: str
) -> None:
    module = Does(what)
    with pytest.raises(ExportError, match=sentence):
        export(module, ROWS, tmp_path / "x.pt2")
    assert module.training
    assert torch.equal(module.seen, torch.zeros(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_module_with_16_bit_weights_is_refused_with_what_to_do(
    tmp_path: Path, kind: torch.dtype
) -> None:
    """ONNX Runtime lacks products in bfloat16, and rounds those in float16 elsewhere."""

    class Halves(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))).to(kind)

        def forward(self, x: Any) -> Any:
            return self.layers(x.to(kind)).float()

    name = str(kind).removeprefix("torch.")
    with pytest.raises(
        ExportError, match=rf"; its weights are {name}: export module.float\(\), of"
    ):
        export(Halves(), torch.randn(16, 64), tmp_path / "x.pt2")
    assert list(tmp_path.iterdir()) == []


def changing_inputs() -> nn.Module:
    class Changes(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.mul_(2)

    return Changes()


def fixed_statistics() -> nn.Module:
    return nn.BatchNorm1d(4, track_running_stats=False)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (changing_inputs(), "forward changes the module or its inputs"),
        (fixed_statistics(), "the module does not run on a single row: Expected more than 1 value"),
        (nn.Linear(4, 2, device="meta"), "the module lies on meta; move it with .cpu"),
        (nn.LazyLinear(2), "'weight' has no shape yet; run the module once before"),
        (torch.jit.ScriptModule(), "the module is TorchScript; export the nn.Module that it was"),
    ],
)
def test_other_modules_that_cannot_be_served(
    tmp_path: Path, module: nn.Module, sentence: str
) -> None:
    with pytest.raises(ExportError, match=sentence):
        export(module, ROWS, tmp_path / "x.pt2")


def test_inputs_are_not_changed_by_a_refusal(tmp_path: Path) -> None:
    rows = ROWS.clone()
    with pytest.raises(ExportError):
        export(changing_inputs(), rows, tmp_path / "x.pt2")
    assert torch.equal(rows, ROWS)


LINEAR = nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("inputs", "names", "sentence"),
    [
        ([[1.0, 2, 3, 4]], {}, "example input 'input' is a list, not a tensor"),
        (ROWS.numpy(), {}, "example_inputs is a ndarray; give a tensor, a tuple of tensors"),
        ((), {}, "example_inputs is empty"),
        (ROWS[:0], {}, "example input 'input' is empty; one row is enough"),
        (torch.tensor(1.0), {}, "example input 'input' is a scalar; its first axis must be the"),
        (ROWS.to("meta"), {}, "example input 'input' lies on meta; give it with .cpu"),
        (ROWS.bfloat16(), {}, "example input 'input' is bfloat16; it must be one of float32"),
        ((ROWS, ROWS[:2]), {}, "the example inputs differ in their rows: input has 3, input_1 has"),
        (ROWS, {"input_names": ["a", "b"]}, "input_names has 2 names, but the model has 1"),
        ((ROWS, ROWS), {"input_names": ["a", "a"]}, "input_names has a name twice"),
        (ROWS, {"input_names": "x"}, "input_names must be a list of names"),
        (ROWS, {"output_names": [""]}, "output_names must be a list of names"),
        (ROWS, {"output_names": ["a", "b"]}, "output_names has 2 names, but the model has 1"),
        (ROWS, {"output_names": ["input"]}, "'input' names an input and an output"),
        ({"x": ROWS}, {}, "the module does not run on the example inputs: .*unexpected keyword"),
    ],
)
def test_examples_that_cannot_be_are_refused(
    tmp_path: Path, inputs: Any, names: Any, sentence: str
) -> None:
    with pytest.raises(ExportError, match=sentence):
        export(LINEAR, inputs, tmp_path / "x.pt2", **names)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "model"])
def test_a_suffix_that_is_not_a_modules_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportError, match=f"{name}: a PyTorch module is exported to a file that"):
        export(LINEAR, ROWS, tmp_path / name)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"a function cannot be exported; give a torch\.nn"):
        export(lambda x: x, ROWS, tmp_path / "x.pt2")
    with pytest.raises(ExportError, match=r"an OrderedDict cannot be exported; give a torch\.nn"):
        export(LINEAR.state_dict(), ROWS, tmp_path / "x.pt2")


def test_a_failed_export_keeps_the_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "x.pt2").write_text("mine")
    with pytest.raises(ExportError):
        export(Does(branching), ROWS, tmp_path / "x.pt2")
    assert (tmp_path / "x.pt2").read_text() == "mine"


def test_a_folder_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        export(LINEAR, ROWS, tmp_path / "none" / "x.pt2")


def test_what_could_only_be_pickled_is_refused(tmp_path: Path) -> None:
    held = {"config": {"module.scale": {"path_name": "custom_obj_0", "use_pickle": True}}}
    path = tmp_path / "archive.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/constants/model_constants_config.json", json.dumps(held))
    with pytest.raises(ExportError, match="'scale' is not a plain tensor and could only"):
        refuse_pickles(path)
