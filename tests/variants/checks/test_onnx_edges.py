"""ONNX models with other inputs and outputs, which compute what they did."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from profiler.evaluation.freed_batch import try_rows
from tests import onnx_models as models
from variants.checks.edges import Edges
from variants.checks.onnx_check import check_model
from variants.checks.onnx_edges import change_edges
from variants.errors import InvalidArtifact, InvalidInput

ROWS = np.array([[1, 0, 0, 2], [0, 3, 1, 0], [0.5, 0, 2, 1]], dtype=np.float32)
HALF = TensorProto.FLOAT16


def changed(folder: Path, model: Any, **edges: Any) -> Path:
    source = models.write(folder / "source.onnx", model)
    change_edges(source, folder / "m.onnx", Edges(**edges))
    return folder / "m.onnx"


def answer(path: Path, **rows: NDArray[Any]) -> list[NDArray[Any]]:
    return list(onnxruntime.InferenceSession(str(path)).run(None, rows))


def names(path: Path) -> tuple[list[str], list[str]]:
    info = check_model(path)
    return [one.name for one in info.inputs], [one.name for one in info.outputs]


def two_sided() -> Any:
    """Two inputs, two outputs, and a value within that is called as an output is to be."""
    return models.model(
        nodes=[
            models.node("Add", ("a", "b"), "scores"),
            models.node("Softmax", ("scores",), "onnx::Gemm_12"),
            models.node("Neg", ("scores",), "less"),
        ],
        inputs=[models.tensor("a", "batch", 4), models.tensor("b", "batch", 4)],
        outputs=[models.tensor("onnx::Gemm_12", "batch", 4), models.tensor("less", "batch", 4)],
    )


def fixed(size: int, *nodes: Any, **weights: Any) -> Any:
    return models.model(
        nodes=nodes or None,
        inputs=[models.tensor("pixels", size, 4)],
        outputs=[models.tensor("scores", size, 3)],
        weights={"weight": models.WEIGHT, **weights},
    )


def test_names_change_and_answers_stay(tmp_path: Path) -> None:
    before = answer(models.write(tmp_path / "before.onnx", two_sided()), a=ROWS, b=ROWS[::-1])
    path = changed(tmp_path, two_sided(), input_names=("x", "y"), output_names=("scores", "rest"))
    assert names(path) == (["x", "y"], ["scores", "rest"])
    for old, new in zip(before, answer(path, x=ROWS, y=ROWS[::-1]), strict=True):
        assert np.array_equal(old, new)


def test_names_may_be_exchanged(tmp_path: Path) -> None:
    subtracting = models.model(
        nodes=[models.node("Sub", ("a", "b"), "scores")],
        inputs=[models.tensor("a", "batch", 4), models.tensor("b", "batch", 4)],
        outputs=[models.tensor("scores", "batch", 4)],
    )
    path = changed(tmp_path, subtracting, input_names=("b", "a"))
    assert names(path) == (["b", "a"], ["scores"])
    (found,) = answer(path, b=ROWS, a=ROWS[::-1])
    assert np.array_equal(found, ROWS - ROWS[::-1])


def test_a_name_that_is_used_within_a_branch_changes_there_as_well(tmp_path: Path) -> None:
    branches = {
        kind: helper.make_graph(
            [models.node(operator, ("pixels",), f"{kind}_scores")],
            kind, [], [models.tensor(f"{kind}_scores", "batch", 4)],
        )
        for kind, operator in (("then", "Neg"), ("else", "Abs"))
    }  # fmt: skip
    model = models.model(
        nodes=[
            models.node(
                "If", ("yes",), "scores", then_branch=branches["then"], else_branch=branches["else"]
            )
        ],
        outputs=[models.tensor("scores", "batch", 4)],
        weights={"yes": np.array(True)},
    )
    (found,) = answer(changed(tmp_path, model, input_names=("x",)), x=ROWS)
    assert np.array_equal(found, -ROWS)


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ({"input_names": ("x",)}, "has 1 name, but source.onnx has 2 inputs: a, b"),
        ({"output_names": ("x", "y", "z")}, "--output-names has 3 names"),
        ({"input_names": ("x", "x")}, "has a name twice"),
        ({"input_names": ("x", "y\n")}, "cannot be the name of an input"),
    ],
)
def test_names_that_cannot_be_are_refused(
    tmp_path: Path, edges: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        changed(tmp_path, two_sided(), **edges)


def test_float16_is_cast_at_the_edges(tmp_path: Path) -> None:
    model = models.model(
        inputs=[models.tensor("pixels", "batch", 4, kind=HALF)],
        outputs=[models.tensor("scores", "batch", 3, kind=HALF)],
        weights={"weight": models.WEIGHT.astype(np.float16)},
    )
    source = models.write(tmp_path / "half.onnx", model)
    with pytest.raises(InvalidArtifact, match="--cast-float16 casts it at the edges"):
        check_model(source)
    path = changed(tmp_path, model, cast_float16=True, output_names=("result",))
    info = check_model(path)
    assert [one.dtype for one in (*info.inputs, *info.outputs)] == ["float32"] * 2
    (half,) = answer(source, pixels=ROWS.astype(np.float16))
    assert np.allclose(answer(path, pixels=ROWS)[0], half.astype(np.float32), atol=1e-3)


def test_a_batch_of_one_is_freed_with_its_reshapes(tmp_path: Path) -> None:
    model = fixed(
        1,
        models.node("Reshape", ("pixels", "flat"), "row"),
        models.node("MatMul", ("row", "weight"), "product"),
        models.node("Reshape", ("product", "whole"), "again"),
        models.node("Softmax", ("again",), "scores"),
        flat=np.array([1, 4]),
        whole=np.array([1, -1]),
    )
    source = models.write(tmp_path / "fixed.onnx", model)
    with pytest.raises(InvalidArtifact, match=r"has a fixed batch of 1; .* or try --free-batch"):
        check_model(source)
    path = changed(tmp_path, model, free_batch=True)
    check_model(path)
    try_rows("m", path)
    alone = [answer(source, pixels=ROWS[i : i + 1])[0] for i in range(3)]
    assert np.allclose(answer(path, pixels=ROWS)[0], np.concatenate(alone))


def test_a_model_that_is_made_for_one_size_is_refused(tmp_path: Path) -> None:
    made_for_one = fixed(
        1,
        models.node("MatMul", ("pixels", "weight"), "product"),
        models.node("Add", ("product", "bias"), "sum"),
        models.node("Expand", ("sum", "whole"), "scores"),
        bias=np.zeros((2, 3), dtype=np.float32),
        whole=np.array([2, 3]),
    )
    path = changed(tmp_path, made_for_one, free_batch=True)
    with pytest.raises(InvalidArtifact, match=r"^m: with its batch freed it does not run with 5"):
        try_rows("m", path)


def test_a_model_that_mixes_its_rows_is_refused(tmp_path: Path) -> None:
    mixing = fixed(
        1,
        models.node("MatMul", ("pixels", "weight"), "product"),
        models.node("ReduceMax", ("product", "axis"), "most", keepdims=1),
        models.node("Sub", ("product", "most"), "scores"),
        axis=np.array([0]),
    )
    path = changed(tmp_path, mixing, free_batch=True)
    with pytest.raises(InvalidArtifact, match="answers a row otherwise beside others than alone"):
        try_rows("m", path)


def test_inputs_of_different_batches_cannot_be_freed(tmp_path: Path) -> None:
    model = models.model(
        nodes=[models.node("Add", ("a", "b"), "scores")],
        inputs=[models.tensor("a", 1, 4), models.tensor("b", 2, 4)],
        outputs=[models.tensor("scores", 2, 4)],
    )
    with pytest.raises(InvalidArtifact, match="batches of 1 and 2, so none can be freed"):
        changed(tmp_path, model, free_batch=True)


def test_the_same_gives_the_same_bytes_and_nothing_asked_changes_nothing(tmp_path: Path) -> None:
    one = changed(tmp_path / "one", two_sided(), input_names=("x", "y"), free_batch=True)
    two = changed(tmp_path / "two", two_sided(), input_names=("x", "y"), free_batch=True)
    assert one.read_bytes() == two.read_bytes()
    assert not Edges()
    same = changed(tmp_path / "same", two_sided())
    assert onnx.load(same) == two_sided()


def two_towers() -> Any:
    """Two encoders in one file, as CLIP has them, and how alike what they give is."""
    return models.model(
        nodes=[
            models.node("MatMul", ("words", "w"), "text"),
            models.node("ReduceMean", ("pictures", "axes"), "mean", keepdims=0),
            models.node("MatMul", ("mean", "p"), "picture"),
            models.node("Transpose", ("picture",), "turned", perm=[1, 0]),
            models.node("MatMul", ("text", "turned"), "alike"),
        ],
        inputs=[
            models.tensor("words", "texts", 4),
            models.tensor("pictures", "images", 3, "height", "width"),
        ],
        outputs=[
            models.tensor("alike", "texts", "images"),
            models.tensor("text", "texts", 2),
            models.tensor("picture", "images", 2),
        ],
        weights={
            "w": np.ones((4, 2), np.float32),
            "p": np.ones((3, 2), np.float32),
            "axes": np.array([2, 3]),
        },
    )


def test_outputs_that_stay_take_what_they_need_along(tmp_path: Path) -> None:
    path = changed(tmp_path, two_towers(), keep_outputs=("text",), output_names=("vector",))
    assert names(path) == (["words"], ["vector"])
    graph = onnx.load(path).graph
    assert [node.op_type for node in graph.node] == ["MatMul"]
    assert [tensor.name for tensor in graph.initializer] == ["w"]
    (whole,) = answer(path, words=ROWS)
    assert np.array_equal(whole, np.repeat(ROWS.sum(1, keepdims=True), 2, axis=1))


def test_outputs_that_stay_have_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    sizes = (("height", 2), ("width", 5))
    path = changed(tmp_path, two_towers(), keep_outputs=("picture", "text"), axis_sizes=sizes)
    assert names(path) == (["words", "pictures"], ["picture", "text"])
    info = check_model(path)
    assert [one.shape for one in info.inputs] == [(4,), (3, 2, 5)]


@pytest.mark.parametrize(
    "sizes", [(("height", 2), ("width", 5)), (("pictures:3", 5), ("height", 2))]
)
def test_axes_that_are_open_get_a_size_by_their_name_or_place(
    tmp_path: Path, sizes: tuple[tuple[str, int], ...]
) -> None:
    path = changed(tmp_path, two_towers(), keep_outputs=("picture",), axis_sizes=sizes)
    (taken,) = check_model(path).inputs
    assert taken.shape == (3, 2, 5)


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ({"keep_outputs": ("texts",)}, "has no output 'texts'; it has: alike, text, picture"),
        ({"keep_outputs": ("text", "text")}, "--keep-outputs has a name twice"),
        (
            {"axis_sizes": (("heigth", 2),)},
            "has no open axis 'heigth'; open are: words:0 'texts', pictures:0 'images', "
            "pictures:2 'height', pictures:3 'width'",
        ),
        ({"axis_sizes": (("words:1", 2),)}, "has no open axis 'words:1'"),
        ({"axis_sizes": (("height", 0),)}, "the size of an axis is from 1 to 1,000,000, not 0"),
    ],
)
def test_outputs_and_axes_that_are_not_there_are_told(
    tmp_path: Path, edges: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        changed(tmp_path, two_towers(), **edges)


# -- inputs with one value, and rows along another axis --------------------------------------------


def streaming(batch: int | str = "batch") -> Any:
    """As detectors of voices are exported: each row of ``sound`` is added, times ``rate``, to its
    ``state`` ``(2, rows, 3)``, of which the first layer is the answer."""
    return models.model(
        inputs=[
            models.tensor("sound", batch, 3),
            models.tensor("state", 2, batch, 3),
            models.tensor("rate", kind=TensorProto.INT64),
        ],
        outputs=[models.tensor("score", batch, 3), models.tensor("later", "a", "b", "c")],
        nodes=[
            models.node("Cast", ("rate",), "times", to=TensorProto.FLOAT),
            models.node("Mul", ("sound", "times"), "louder"),
            models.node("Add", ("state", "louder"), "later"),
            models.node("Gather", ("later", "first"), "score", axis=0),
        ],
        weights={"first": np.array(0)},
    )


STREAMING: dict[str, Any] = {
    "fix_inputs": (("rate", 10),), "batch_axes": (("state", 1), ("later", 1)),
}  # fmt: skip


@pytest.mark.parametrize(("batch", "edges"), [("batch", {}), (1, {"free_batch": True})])
def test_a_model_with_a_state_takes_it_row_by_row(
    tmp_path: Path, batch: int | str, edges: dict[str, Any]
) -> None:
    path = changed(tmp_path, streaming(batch), **STREAMING, **edges)
    info = check_model(path)
    assert {one.name: one.shape for one in info.inputs} == {"sound": (3,), "state": (2, 3)}
    assert {one.name: one.shape for one in info.outputs} == {"score": (3,), "later": (2, 3)}
    sound = np.arange(12, dtype=np.float32).reshape(4, 3)
    state = np.arange(24, dtype=np.float32).reshape(4, 2, 3) / 100
    score, later = answer(path, sound=sound, state=state)
    assert np.array_equal(later, state + 10 * sound[:, None])
    assert np.array_equal(score, later[:, 0])
    again = changed(tmp_path, streaming(batch), **STREAMING, **edges)
    assert again.read_bytes() == path.read_bytes()


def test_the_axes_of_an_output_that_says_others_are_those_that_it_has(tmp_path: Path) -> None:
    """Of a recogniser whose exporter was told the names of two axes, and which gives three."""
    model = models.model(
        inputs=[models.tensor("pixels", "batch", 6)],
        outputs=[models.tensor("steps", 1, "length")],
        nodes=[
            models.node("Shape", ("pixels",), "rows", end=1),
            models.node("Concat", ("three", "rows", "two"), "sizes", axis=0),
            models.node("Neg", ("pixels",), "less"),
            models.node("Reshape", ("less", "sizes"), "rowwise"),
            models.node("Cast", ("sizes",), "wide", to=TensorProto.FLOAT),
            models.node("Cast", ("wide",), "same", to=TensorProto.INT64),
            models.node("Reshape", ("rowwise", "same"), "steps"),
        ],
        weights={"three": np.array([3]), "two": np.array([2])},
    )
    path = changed(tmp_path, model, batch_axes=(("steps", 1),))
    rows = np.arange(24, dtype=np.float32).reshape(4, 6)
    (steps,) = answer(path, pixels=rows)
    assert np.array_equal(steps, -rows.reshape(3, 4, 2).swapaxes(0, 1))


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ({"fix_inputs": (("rat", 1),)}, "has no input 'rat'; it has: sound, state, rate"),
        ({"fix_inputs": (("rate", 1.5),)}, "'rate' of source.onnx is int64, and cannot be 1.5"),
        ({"fix_inputs": (("rate", 1e30),)}, "is int64, and cannot be 1e.30"),
        ({"fix_inputs": (("state", 0),)}, "'state' of source.onnx leaves an axis open, and one"),
        ({"batch_axes": (("stat", 1),)}, "no input or output 'stat'; it has: sound, state, rate"),
        ({"batch_axes": (("state", 3),)}, "rows of 'state' .* cannot be along axis 3: .* 0 to 2"),
        ({"batch_axes": (("state", 0),)}, "axis 0: .* and 0 needs no --batch-axes"),
    ],
)
def test_values_and_axes_that_cannot_be_are_told(
    tmp_path: Path, edges: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        changed(tmp_path, streaming(), **edges)


def test_a_model_has_an_input_left(tmp_path: Path) -> None:
    model = models.model(inputs=[models.tensor("pixels", 2, 4)])
    with pytest.raises(InvalidInput, match="would have no inputs left"):
        changed(tmp_path, model, fix_inputs=(("pixels", 0.5),))
