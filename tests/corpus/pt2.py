"""Archives of PyTorch models, written without torch: the sound one, and ways to change it.

The sound one is the model of ``tests.onnx_models``. ``tests/variants/checks/test_archive_check.py``
shows that torch reads it and that it answers the same.
"""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import onnx_models as models

NAME = "net.pt2"
ROOT = "archive/"
PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
DECLARED = "extra/modelless.json"
ONNX = "modelless/model.onnx"
SAID = "net-v1: net.pt2"

Members = dict[str, bytes]
Edit = Callable[[Any], object]

BATCH = {"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)",
                     "hint": {"as_int": 2}}}  # fmt: skip


def meta(*sizes: Any, requires_grad: bool = False) -> Any:
    """A tensor of float32, as torch's schema describes it."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return {
        "dtype": 7,
        "sizes": [size if isinstance(size, dict) else {"as_int": size} for size in sizes],
        "requires_grad": requires_grad,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": stride} for stride in strides],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def given(name: str) -> Any:
    return {"as_tensor": {"name": name}}


def call(target: str, output: str, **arguments: Any) -> Any:
    return {
        "target": target,
        "inputs": [{"name": n, "arg": arg, "kind": 1} for n, arg in arguments.items()],
        "outputs": [given(output)],
        "metadata": {"torch_fn": "function_1;builtin_function_or_method.function"},
        "is_hop_single_tensor_return": None,
        "name": output,
    }


def tree(children: Any, kind: str = "builtins.tuple", context: Any = "null") -> Any:
    return {"type": kind, "context": context, "children_spec": children}


def program() -> Any:
    """Softmax of ``pixels @ weight``."""
    leaf = tree([], None, None)  # type: ignore[arg-type]
    arguments = tree([tree([leaf]), tree([], "builtins.dict", "[]")])
    values = {
        "p_weight": meta(4, 3, requires_grad=True),
        "pixels": meta(BATCH, 4),
        "matmul": meta(BATCH, 3),
        "softmax": meta(BATCH, 3),
    }
    return {
        "graph_module": {
            "graph": {
                "inputs": [given("p_weight"), given("pixels")],
                "outputs": [given("softmax")],
                "nodes": [
                    call("torch.ops.aten.matmul.default", "matmul",
                         self=given("pixels"), other=given("p_weight")),
                    call("torch.ops.aten.softmax.int", "softmax",
                         self=given("matmul"), dim={"as_int": -1}),
                ],
                "tensor_values": values,
                "sym_int_values": {},
                "sym_bool_values": {},
                "is_single_tensor_return": False,
                "custom_obj_values": {},
                "sym_float_values": {},
            },
            "signature": {
                "input_specs": [
                    {"parameter": {"arg": {"name": "p_weight"}, "parameter_name": "weight"}},
                    {"user_input": {"arg": given("pixels")}},
                ],
                "output_specs": [{"user_output": {"arg": given("softmax")}}],
            },
            "module_call_graph": [
                {
                    "fqn": "",
                    "signature": {
                        "inputs": [],
                        "outputs": [],
                        "in_spec": json.dumps([1, arguments]),
                        "out_spec": json.dumps([1, tree([leaf])]),
                        "forward_arg_names": ["pixels"],
                    },
                }
            ],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10},
        "range_constraints": {"s0": {"min_val": 0, "max_val": None}},
        "schema_version": {"major": 8, "minor": 20},
        "verifiers": ["TRAINING"],
        "torch_version": "2.13.0+cpu",
        "guards_code": [],
    }  # fmt: skip


def payloads(path: str = "weight_0", **changes: Any) -> Any:
    payload = {
        "path_name": path,
        "is_param": True,
        "use_pickle": False,
        "tensor_meta": meta(4, 3, requires_grad=True),
    }
    return {"config": {"weight": payload | changes}}


def declared() -> Any:
    return {
        "format": 1,
        "torch": "2.13.0+cpu",
        "opset": models.OPSET,
        "inputs": [{"name": "pixels", "dtype": "float32", "shape": [4]}],
        "outputs": [{"name": "scores", "dtype": "float32", "shape": [3]}],
    }


def members() -> Members:
    """Of the sound archive, by their names below the root."""
    return {
        "data/weights/weight_0": models.WEIGHT.tobytes(),
        WEIGHTS: json.dumps(payloads()).encode(),
        "data/constants/model_constants_config.json": b'{"config": {}}',
        PROGRAM: json.dumps(program()).encode(),
        "data/sample_inputs/model.pt": b"",
        DECLARED: json.dumps(declared()).encode(),
        "archive_format": b"pt2",
        "archive_version": b"0",
        ".data/version": b"6\n",
        "byteorder": b"little",
        ".data/serialization_id": b"0" * 40,
        ONNX: models.model().SerializeToString(),
    }


def write(
    path: Path, what: Members, *, root: str = ROOT, packing: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, data in what.items():
            archive.writestr(zipfile.ZipInfo(root + name), data, packing)
    return path


def sound(path: Path) -> Path:
    return write(path, members())


def changed(folder: Path, **changes: bytes | None) -> Path:
    """The sound archive with members replaced, added, or left out (``None``)."""
    return write(folder / NAME, edited(members(), changes))


def edited(what: Members, changes: dict[str, bytes | None]) -> Members:
    return {name: data for name, data in (what | changes).items() if data is not None}


def with_document(folder: Path, name: str, document: Any) -> Path:
    return changed(folder, **{name: json.dumps(document).encode()})


def with_program(folder: Path, edit: Edit) -> Path:
    """The sound archive with something else in its program."""
    document = program()
    edit(document)
    return with_document(folder, PROGRAM, document)


def graph_of(document: Any) -> Any:
    return document["graph_module"]["graph"]


def pickled() -> bytes:
    return pickle.dumps({"weight": [1.0], "call": print})
