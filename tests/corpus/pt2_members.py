"""Archives that are refused for their members, their weights, or what they declare."""

import json
from pathlib import Path

import numpy as np

from tests import onnx_models as models
from tests.corpus.case import Step, bad
from tests.corpus.pt2 import (
    DECLARED,
    ONNX,
    PROGRAM,
    SAID,
    WEIGHTS,
    changed,
    declared,
    graph_of,
    meta,
    payloads,
    pickled,
    program,
    with_document,
)

# -- what may not be inside ----------------------------------------------------------------------


@bad(Step.CHECK, rf"{SAID}/data/sample_inputs/model.pt holds pickled inputs")
def pickled_sample_inputs(folder: Path) -> Path:
    return changed(folder, **{"data/sample_inputs/model.pt": pickled()})


@bad(
    Step.CHECK,
    rf"{SAID} has the member 'archive/data/weights/model.pt', which would have to be unpickled",
)
def weights_as_a_pickle(folder: Path) -> Path:
    """The older layout: torch takes this file before all others."""
    return changed(folder, **{"data/weights/model.pt": pickled()})


@bad(Step.CHECK, rf"{SAID} has the member '.*/custom_obj_0', which would have to be unpickled")
def object_of_torchscript(folder: Path) -> Path:
    return changed(folder, **{"data/constants/custom_obj_0": pickled()})


@bad(Step.CHECK, rf"{SAID} has the member '.*/opaque_obj_0', which would have to be unpickled")
def object_of_python(folder: Path) -> Path:
    return changed(folder, **{"data/constants/opaque_obj_0": pickled()})


@bad(Step.CHECK, rf"{SAID}/{WEIGHTS}: config.weight.use_pickle is true, not false$")
def weight_as_a_pickle(folder: Path) -> Path:
    document = json.dumps(payloads(use_pickle=True)).encode()
    return changed(folder, **{WEIGHTS: document, "data/weights/weight_0": pickled()})


@bad(Step.CHECK, rf"{SAID} has the member 'archive/data/aotinductor/model/net.so', which is code")
def compiled_library(folder: Path) -> Path:
    return changed(folder, **{"data/aotinductor/model/net.so": b"\x7fELF" + bytes(60)})


@bad(Step.CHECK, rf"{SAID} has the member 'archive/models/second.json', which no archive")
def second_program(folder: Path) -> Path:
    return changed(folder, **{"models/second.json": json.dumps(program()).encode()})


@bad(Step.CHECK, rf"{SAID} lacks the member 'archive/models/model.json'")
def no_program(folder: Path) -> Path:
    return changed(folder, **{PROGRAM: None})


@bad(Step.CHECK, rf"{SAID} lacks the member 'archive/modelless/model.onnx'")
def no_onnx(folder: Path) -> Path:
    return changed(folder, **{ONNX: None})


@bad(Step.CHECK, rf"{SAID} lacks the member 'archive/extra/modelless.json'")
def no_declaration(folder: Path) -> Path:
    return changed(folder, **{DECLARED: None})


@bad(Step.CHECK, rf"{SAID}/byteorder is not 'little'")
def numbers_the_other_way_round(folder: Path) -> Path:
    return changed(folder, byteorder=b"big")


@bad(Step.CHECK, rf"{SAID}/archive_version is not '0'")
def archive_of_the_future(folder: Path) -> Path:
    return changed(folder, archive_version=b"7")


# -- weights -------------------------------------------------------------------------------------


@bad(Step.CHECK, rf"{SAID}/data/weights/weight_0 has 28 bytes, but the tensor 'weight' needs 48$")
def storage_shorter_than_declared(folder: Path) -> Path:
    return changed(folder, **{"data/weights/weight_0": bytes(28)})


@bad(Step.CHECK, rf"{SAID}/data/weights/weight_0 has 0 bytes, but the tensor 'weight' needs 48$")
def storage_that_is_empty(folder: Path) -> Path:
    """torch would reserve what is declared, and fill it with zeros."""
    return changed(folder, **{"data/weights/weight_0": b""})


@bad(Step.CHECK, rf"{SAID}/{WEIGHTS} keeps the tensor 'weight' in data/weights/weight_7, which is")
def storage_that_is_not_there(folder: Path) -> Path:
    return with_document(folder, WEIGHTS, payloads("weight_7"))


@bad(Step.CHECK, rf"{SAID}/{WEIGHTS}: config.weight.path_name is '\.\./\.\./x', which is not")
def storage_above_its_folder(folder: Path) -> Path:
    return with_document(folder, WEIGHTS, payloads("../../x"))


@bad(Step.CHECK, rf"{SAID}/data/weights/weight_1 belongs to no weight$")
def storage_that_nothing_names(folder: Path) -> Path:
    return changed(folder, **{"data/weights/weight_1": bytes(48)})


@bad(Step.CHECK, rf"{SAID}/data/weights/weight_0 contains NaN$")
def storage_with_a_nan(folder: Path) -> Path:
    weight = models.WEIGHT.copy()
    weight[3, 0] = np.nan
    return changed(folder, **{"data/weights/weight_0": weight.tobytes()})


@bad(
    Step.CHECK,
    rf"{SAID}/{WEIGHTS} and the program differ in what they say of the tensor 'weight'$",
)
def weight_of_another_shape_than_the_program_s(folder: Path) -> Path:
    return with_document(folder, WEIGHTS, payloads(tensor_meta=meta(3, 4, requires_grad=True)))


@bad(Step.CHECK, rf"{SAID}/data/weights/weight_0 repeats itself to \d+ bytes$")
def weight_that_repeats_itself_without_end(folder: Path) -> Path:
    """A stride of zero: a single number stands for terabytes."""
    wide = meta(2**40, 3, requires_grad=True)
    wide["strides"] = [{"as_int": 0}, {"as_int": 0}]
    document = program()
    graph_of(document)["tensor_values"]["p_weight"] = wide
    return changed(
        folder,
        **{
            WEIGHTS: json.dumps(payloads(tensor_meta=wide)).encode(),
            PROGRAM: json.dumps(document).encode(),
        },
    )


# -- what it declares ----------------------------------------------------------------------------


@bad(Step.CHECK, rf"{SAID}/{DECLARED}: format is 2, not 1$")
def declaration_of_the_future(folder: Path) -> Path:
    return with_document(folder, DECLARED, declared() | {"format": 2})


@bad(
    Step.CHECK, rf"{SAID}/{PROGRAM} has the input 'pixels' as float32 \[batch, 4\], but .* declares"
)
def program_other_than_declared(folder: Path) -> Path:
    inputs = [{"name": "pixels", "dtype": "float32", "shape": [5]}]
    return with_document(folder, DECLARED, declared() | {"inputs": inputs})


@bad(
    Step.CHECK,
    rf"{SAID}/{ONNX} has the output 'logits' as float32 \[batch, 3\], but .* not at all$",
)
def onnx_other_than_declared(folder: Path) -> Path:
    other = models.model(
        nodes=[models.node("MatMul", ("pixels", "weight"), "logits")],
        outputs=[models.tensor("logits", "batch", 3)],
    )
    return changed(folder, **{ONNX: other.SerializeToString()})


@bad(Step.CHECK, rf"{SAID}/{ONNX} uses opset 18, but .* declares 20$")
def onnx_of_another_opset(folder: Path) -> Path:
    return changed(folder, **{ONNX: models.model(opsets=[("", 18)]).SerializeToString()})


@bad(Step.CHECK, rf"{SAID}/{ONNX} is not an ONNX model")
def onnx_cut_off(folder: Path) -> Path:
    return changed(folder, **{ONNX: models.model().SerializeToString()[:-30]})


@bad(Step.CHECK, rf"{SAID}/{ONNX}: tensor 'weight' contains NaN$")
def onnx_with_a_nan(folder: Path) -> Path:
    weight = np.full((4, 3), np.nan, np.float32)
    return changed(folder, **{ONNX: models.model(weights={"weight": weight}).SerializeToString()})
