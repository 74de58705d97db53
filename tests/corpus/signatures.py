"""ONNX files that are refused for what they take and give, before anything of them runs."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from tests import onnx_models as models
from tests.corpus.case import Step, bad
from tests.corpus.graphs import node, tensor, written

# -- inputs and outputs --------------------------------------------------------------------------


@bad(Step.CHECK, r"net-v1: net.onnx: the model has no outputs$")
def no_outputs(folder: Path) -> Path:
    what = models.model()
    what.graph.ClearField("output")
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx: the model has no inputs$")
def no_inputs(folder: Path) -> Path:
    nodes = [
        node("RandomUniformLike", ("weight",), "product"),
        node("NonZero", ("product",), "where"),
        node("Cast", ("where",), "wide", to=TensorProto.FLOAT),
        node("Transpose", ("wide",), "scores"),
    ]
    what = models.model(nodes=nodes, outputs=[tensor("scores", "found", 2)])
    what.graph.ClearField("input")
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx: input 'pixels' has a fixed batch of 8")
def fixed_batch(folder: Path) -> Path:
    return written(
        folder, models.model(inputs=[tensor("pixels", 8, 4)], outputs=[tensor("scores", 8, 3)])
    )


@bad(
    Step.CHECK,
    r"net-v1: net.onnx: input 'pixels' leaves axis 1 open; .* or export it with one size",
)
def inner_axis_that_varies(folder: Path) -> Path:
    return written(folder, models.model(inputs=[tensor("pixels", "batch", "width")]))


@bad(Step.CHECK, r"net-v1: net.onnx: input 'pixels' leaves axis 1 open")
def inner_axis_of_size_zero(folder: Path) -> Path:
    weights = {"weight": np.zeros((0, 3), np.float32)}
    return written(folder, models.model(inputs=[tensor("pixels", "batch", 0)], weights=weights))


@bad(
    Step.CHECK,
    r"net-v1: net.onnx: input 'pixels' takes 32,768 MiB for one row, more than the 256 allowed$",
)
def row_of_a_billion_numbers(folder: Path) -> Path:
    nodes = [
        node("ReduceMax", ("pixels", "axis"), "most", keepdims=1),
        node("Expand", ("most", "shape"), "scores"),
    ]
    weights = {"axis": np.array([1]), "shape": np.array([1, 3])}
    return written(
        folder,
        models.model(nodes=nodes, weights=weights, inputs=[tensor("pixels", "batch", 2**33)]),
    )


@bad(Step.CHECK, r"net-v1: net.onnx: input 'pixels' has type string")
def text_as_input(folder: Path) -> Path:
    what = models.model(
        nodes=[node("Cast", ("pixels",), "scores", to=TensorProto.FLOAT)],
        inputs=[tensor("pixels", "batch", 3, kind=TensorProto.STRING)],
    )
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx: output 'scores' has type string")
def text_as_output(folder: Path) -> Path:
    what = models.model(
        nodes=[node("Cast", ("pixels",), "scores", to=TensorProto.STRING)],
        outputs=[tensor("scores", "batch", 4, kind=TensorProto.STRING)],
    )
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx: input 'pixels' is a scalar")
def scalar_as_input(folder: Path) -> Path:
    nodes = [node("Expand", ("pixels", "shape"), "scores")]
    weights = {"shape": np.array([1, 3])}
    return written(folder, models.model(nodes=nodes, weights=weights, inputs=[tensor("pixels")]))


@bad(Step.CHECK, r"net-v1: net.onnx: input 'pixels' is not a tensor$")
def list_as_input(folder: Path) -> Path:
    inputs = [helper.make_tensor_sequence_value_info("pixels", TensorProto.FLOAT, ["batch", 4])]
    nodes = [
        node("ConcatFromSequence", ("pixels",), "whole", axis=0),
        node("MatMul", ("whole", "weight"), "scores"),
    ]
    return written(folder, models.model(nodes=nodes, inputs=inputs))


@bad(Step.CHECK, r"net.onnx: its first output must be scores, float \[batch, classes\]")
def scores_of_two_axes(folder: Path) -> Path:
    what = models.model(
        nodes=[node("Unsqueeze", ("pixels", "axis"), "scores")],
        outputs=[tensor("scores", "batch", 4, 1)],
        weights={"axis": np.array([2])},
    )
    return written(folder, what)


@bad(Step.CHECK, r"net.onnx: .*; where it has scores for each position of a row, leave that axis")
def scores_of_positions(folder: Path) -> Path:
    """As a recogniser of texts has them, exported for one width of its pictures."""
    what = models.model(
        nodes=[
            node("Unsqueeze", ("pixels", "axis"), "wide"),
            node("Expand", ("wide", "sizes"), "scores"),
        ],
        outputs=[tensor("scores", "batch", 4, 3)],
        weights={"axis": np.array([2]), "sizes": np.array([1, 4, 3])},
    )
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx has an input with a name that cannot be shown$")
def input_with_a_control_character_in_its_name(folder: Path) -> Path:
    name = "pixels\x1b[2J\n"
    nodes = [node("MatMul", (name, "weight"), "scores")]
    return written(folder, models.model(nodes=nodes, inputs=[tensor(name, "batch", 4)]))


@bad(Step.CHECK, r"net-v1: net.onnx has an output with a name that cannot be shown$")
def output_with_a_name_of_a_megabyte(folder: Path) -> Path:
    name = "s" * 2**20
    nodes = [node("MatMul", ("pixels", "weight"), name)]
    return written(folder, models.model(nodes=nodes, outputs=[tensor(name, "batch", 3)]))


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model: a name in it is no text$")
def operator_that_is_no_text(folder: Path) -> Path:
    data = models.model().SerializeToString()
    return written(folder, data.replace(b"MatMul", b"Mat\xff\xfel"))


@bad(Step.CHECK, r"net-v1: net.onnx: input 'pixels' has 33 axes, more than the 8 allowed$")
def input_of_too_many_axes(folder: Path) -> Path:
    nodes = [node("Flatten", ("pixels",), "flat"), node("MatMul", ("flat", "weight"), "scores")]
    inputs = [tensor("pixels", "batch", *[1] * 31, 4)]
    return written(folder, models.model(nodes=nodes, inputs=inputs))


# -- a task that exists --------------------------------------------------------------------------

NAMED = r"; --input-names, or input_names of modelless\.export, names them$"


@bad(Step.CHECK, r"net.onnx takes inputs x, but task 'shapes' has pixels" + NAMED, known=True)
def input_of_another_name(folder: Path) -> Path:
    nodes = [node("MatMul", ("x", "weight"), "scores")]
    return written(folder, models.model(inputs=[tensor("x", "batch", 4)], nodes=nodes))


@bad(
    Step.CHECK,
    r"net.onnx takes inputs other, pixels, but task 'shapes' has pixels" + NAMED,
    known=True,
)
def input_too_many(folder: Path) -> Path:
    nodes = [
        node("Add", ("pixels", "other"), "sum"),
        node("MatMul", ("sum", "weight"), "scores"),
    ]
    inputs = [tensor("pixels", "batch", 4), tensor("other", "batch", 4)]
    return written(folder, models.model(inputs=inputs, nodes=nodes))


@bad(
    Step.CHECK, r"net.onnx: input 'pixels' is int64 \[batch, 4\], but task 'shapes' has", known=True
)
def input_of_another_type(folder: Path) -> Path:
    nodes = [
        node("Cast", ("pixels",), "single", to=TensorProto.FLOAT),
        node("MatMul", ("single", "weight"), "scores"),
    ]
    inputs = [tensor("pixels", "batch", 4, kind=TensorProto.INT64)]
    return written(folder, models.model(nodes=nodes, inputs=inputs))


@bad(Step.CHECK, r"net.onnx: input 'pixels' is float32 \[batch, 2, 2\], but task", known=True)
def input_of_another_shape(folder: Path) -> Path:
    nodes = [node("Flatten", ("pixels",), "flat"), node("MatMul", ("flat", "weight"), "scores")]
    return written(folder, models.model(nodes=nodes, inputs=[tensor("pixels", "batch", 2, 2)]))


@bad(
    Step.CHECK,
    r"net.onnx gives outputs logits, and lacks scores of task 'shapes'; --output-names, or ",
    known=True,
)
def output_of_another_name(folder: Path) -> Path:
    nodes = [node("MatMul", ("pixels", "weight"), "logits")]
    return written(folder, models.model(nodes=nodes, outputs=[tensor("logits", "batch", 3)]))


@bad(
    Step.CHECK,
    r"net.onnx: output 'scores' is float32 \[batch, 2\], but task 'shapes' has .*: register it",
    known=True,
)
def class_too_few(folder: Path) -> Path:
    weights = {"weight": np.eye(4, 2, dtype=np.float32)}
    return written(folder, models.model(outputs=[tensor("scores", "batch", 2)], weights=weights))


@bad(Step.CHECK, r"net-v1: net.onnx: output 'probabilities' is not a tensor")
def scores_as_a_list_of_tensors(folder: Path) -> Path:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier

    rows = np.eye(4, dtype=np.float32)
    several = MultiOutputClassifier(LogisticRegression()).fit(
        rows, [[0, 1], [1, 1], [1, 0], [0, 0]]
    )
    return written(folder, to_onnx(several, rows[:1], options={"zipmap": False}))
