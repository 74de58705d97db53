"""ONNX files that are refused for what they say, before anything of them runs."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from tests import onnx_models as models
from tests.corpus.case import Step, bad

node, tensor = models.node, models.tensor
NAME = "net.onnx"


def written(folder: Path, what: Any) -> Path:
    """Without the library's own checks."""
    path = folder / NAME
    path.write_bytes(what if isinstance(what, bytes) else what.SerializeToString())
    return path


def cut(folder: Path, share: float) -> Path:
    whole = models.model().SerializeToString()
    return written(folder, whole[: int(len(whole) * share)])


# -- no model at all -----------------------------------------------------------------------------


@bad(Step.FIND, r"net.onnx is empty$")
def empty_file(folder: Path) -> Path:
    return written(folder, b"")


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model")
def text_file(folder: Path) -> Path:
    return written(folder, b"This is no model at all.\n")


@bad(Step.CHECK, r"net-v1: net.onnx is a page of the web, not the model")
def page_of_an_error(folder: Path) -> Path:
    return written(folder, b"<!DOCTYPE html><html><body><h1>404 Not Found</h1></body></html>\n" * 9)


@bad(Step.CHECK, r"net-v1: net.onnx is what Git LFS keeps in its place; `git lfs pull`")
def pointer_of_a_large_file_store(folder: Path) -> Path:
    lines = ["version https://git-lfs.github.com/spec/v1", "oid sha256:" + "0" * 64, "size 9", ""]
    return written(folder, "\n".join(lines).encode())


@bad(Step.CHECK, r"net-v1: net.onnx is a pickle, .*which is never read; .*modelless\.export\(")
def pickle_under_another_name(folder: Path) -> Path:
    return written(folder, pickle.dumps({"weight": models.WEIGHT, "call": print}))


@bad(
    Step.CHECK,
    r"net-v1: net.onnx has arrays of NumPy, as files of rows do; the model is another file$",
)
def archive_under_another_name(folder: Path) -> Path:
    data = io.BytesIO()
    np.savez(data, weight=models.WEIGHT)
    return written(folder, data.getvalue())


@bad(Step.CHECK, r"net-v1: net.onnx is what Git LFS keeps in its place; `git lfs pull` fetches")
def pointer_of_git_lfs(folder: Path) -> Path:
    said = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n"
    return written(folder, said.encode())


@bad(Step.CHECK, r"net-v1: net.onnx is a page of the web, not the model")
def page_of_a_download(folder: Path) -> Path:
    return written(folder, b"<!DOCTYPE html><html><body>Sign in</body></html>")


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model")
def zeros(folder: Path) -> Path:
    return written(folder, bytes(4096))


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model")
def ones(folder: Path) -> Path:
    return written(folder, b"\xff" * 4096)


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model")
def cut_off_in_its_header(folder: Path) -> Path:
    return cut(folder, 0.02)


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model, or only a part of one")
def cut_off_in_its_nodes(folder: Path) -> Path:
    return cut(folder, 0.4)


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model, or only a part of one")
def cut_off_in_its_weights(folder: Path) -> Path:
    return cut(folder, 0.7)


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model, or only a part of one$")
def cut_off_before_its_last_field(folder: Path) -> Path:
    return cut(folder, 0.985)


@bad(Step.FIND, r"net.onnx has 41 MiB, more than the 40 allowed$")
def larger_than_allowed(folder: Path) -> Path:
    path = models.write(folder / NAME)
    with path.open("r+b") as file:
        file.truncate(41 * 2**20)
    return path


# -- versions ------------------------------------------------------------------------------------


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model; ")
def no_format_version(folder: Path) -> Path:
    what = models.model()
    what.ClearField("ir_version")
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model: Your model ir_version 999 is higher")
def format_of_the_future(folder: Path) -> Path:
    what = models.model()
    what.ir_version = 999
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx uses opset 4; it must be between 7 and \d+$")
def opset_of_the_past(folder: Path) -> Path:
    return written(folder, models.model(opsets=[("", 4)]))


@bad(Step.CHECK, r"net-v1: net.onnx uses opset 999; it must be between 7 and \d+$")
def opset_of_the_future(folder: Path) -> Path:
    return written(folder, models.model(opsets=[("", 999)]))


@bad(Step.CHECK, r"net-v1: net.onnx uses opsets 20 and 13 of the same operators$")
def opset_twice(folder: Path) -> Path:
    return written(folder, models.model(opsets=[("", 20), ("", 13)]))


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model; ")
def no_opset(folder: Path) -> Path:
    what = models.model()
    what.ClearField("opset_import")
    return written(folder, what)


# -- operators -----------------------------------------------------------------------------------


@bad(Step.CHECK, r"net-v1: net.onnx uses the operator 'Frobnicate', which opset 20 does not have$")
def unknown_operator(folder: Path) -> Path:
    return written(folder, models.model(nodes=[node("Frobnicate", ("pixels", "weight"), "scores")]))


@bad(Step.CHECK, r"net-v1: net.onnx uses operators of 'com.example'")
def operator_of_a_domain_of_its_own(folder: Path) -> Path:
    nodes = [node("MatMul", ("pixels", "weight"), "scores", domain="com.example")]
    return written(folder, models.model(nodes=nodes, opsets=[("", 20), ("com.example", 1)]))


@bad(Step.CHECK, r"net-v1: net.onnx uses operators of 'com.example'")
def operator_hidden_in_a_branch(folder: Path) -> Path:
    then = helper.make_graph(
        [node("Read", ("pixels",), "scores", domain="com.example")],
        "then", [], [tensor("scores", "batch", 3)],
    )  # fmt: skip
    other = helper.make_graph(
        [node("MatMul", ("pixels", "weight"), "scores")],
        "else", [], [tensor("scores", "batch", 3)],
    )  # fmt: skip
    nodes = [helper.make_node("If", ["yes"], ["scores"], then_branch=then, else_branch=other)]
    weights = {"weight": models.WEIGHT, "yes": np.array(True)}
    return written(folder, models.model(nodes=nodes, weights=weights))


@bad(Step.CHECK, r"net-v1: net.onnx uses the operator 'Upsample', which opset 20 has withdrawn$")
def withdrawn_operator(folder: Path) -> Path:
    nodes = [node("Upsample", ("pixels", "weight"), "scores")]
    return written(folder, models.model(nodes=nodes))


@bad(Step.CHECK, r"net-v1: net.onnx defines functions of its own")
def function_that_calls_itself(folder: Path) -> Path:
    body = helper.make_function(
        "com.example", "Again", ["x"], ["y"],
        [node("Again", ("x",), "y", domain="com.example")],
        [helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)],
    )  # fmt: skip
    what = models.model()
    what.functions.append(body)
    what.functions[0].node[0].domain = ""
    return written(folder, what)


# -- the graph -----------------------------------------------------------------------------------


@bad(Step.CHECK, r"net-v1: net.onnx: the model's graph is empty$")
def graph_without_nodes(folder: Path) -> Path:
    graph = helper.make_graph([], "empty", [tensor("pixels", "batch", 4)], [])
    return written(folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model")
def cyclic_graph(folder: Path) -> Path:
    nodes = [
        node("MatMul", ("pixels", "weight"), "product"),
        node("Add", ("product", "second"), "first"),
        node("Relu", ("first",), "second"),
        node("Softmax", ("second",), "scores"),
    ]
    return written(folder, models.model(nodes=nodes))


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model")
def edge_from_nowhere(folder: Path) -> Path:
    return written(folder, models.model(nodes=[node("Relu", ("nowhere",), "scores")]))


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model")
def output_from_nowhere(folder: Path) -> Path:
    return written(folder, models.model(outputs=[tensor("elsewhere", "batch", 3)]))


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model")
def value_made_twice(folder: Path) -> Path:
    nodes = [
        node("MatMul", ("pixels", "weight"), "scores"),
        node("MatMul", ("pixels", "weight"), "scores"),
    ]
    return written(folder, models.model(nodes=nodes))


@bad(
    Step.CHECK,
    r"net-v1: net.onnx is not a valid ONNX model: weight initializer name is not unique",
)
def weight_twice(folder: Path) -> Path:
    what = models.model()
    what.graph.initializer.append(what.graph.initializer[0])
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model: .*'pixels'")
def input_twice(folder: Path) -> Path:
    return written(folder, models.model(inputs=[tensor("pixels", "batch", 4)] * 2))


@bad(Step.CHECK, r"net-v1: net.onnx: 'scores' names more than one input or output$")
def output_twice(folder: Path) -> Path:
    return written(folder, models.model(outputs=[tensor("scores", "batch", 3)] * 2))


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model: Field 'name'")
def input_without_a_name(folder: Path) -> Path:
    nodes = [node("MatMul", ("pixels", "weight"), "scores")]
    inputs = [tensor("pixels", "batch", 4), tensor("", "batch", 4)]
    return written(folder, models.model(nodes=nodes, inputs=inputs))


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model")
def shapes_that_do_not_fit(folder: Path) -> Path:
    return written(folder, models.model(weights={"weight": np.ones((5, 3), np.float32)}))


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model")
def attribute_of_another_type(folder: Path) -> Path:
    nodes = [
        node("MatMul", ("pixels", "weight"), "product"),
        node("Softmax", ("product",), "scores", axis="last"),
    ]
    return written(folder, models.model(nodes=nodes))


@bad(Step.CHECK, r"net-v1: net.onnx is a training graph; export it for inference$")
def training_graph(folder: Path) -> Path:
    what = models.model()
    what.training_info.add().algorithm.CopyFrom(what.graph)
    return written(folder, what)


@bad(Step.CHECK, r"net-v1: net.onnx: the model has 100001 nodes, more than the 100000 allowed$")
def too_many_nodes(folder: Path) -> Path:
    what = models.model()
    graph, one = what.graph.SerializeToString(), what.graph.node[0].SerializeToString()
    what.ClearField("graph")
    return written(folder, what.SerializeToString() + field(7, graph + field(1, one) * 99_999))


@bad(Step.CHECK, r"net-v1: net.onnx is not an ONNX model, or only a part of one$")
def graphs_nested_without_end(folder: Path) -> Path:
    """One more inside the other than any reader takes, assembled by hand: no library writes it."""
    graph = helper.make_graph(
        [node("MatMul", ("pixels", "weight"), "scores")],
        "inner",
        [],
        [tensor("scores", "batch", 3)],
    ).SerializeToString()
    for _ in range(400):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(
            1, field(1, b"yes") + field(2, b"scores") + field(4, b"If") + field(5, attribute)
        )
    what = models.model()
    what.ClearField("graph")
    return written(folder, what.SerializeToString() + field(7, graph))


def field(number: int, data: bytes) -> bytes:
    """A message in a message, as protobuf lays it out."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])
