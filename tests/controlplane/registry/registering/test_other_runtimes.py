"""Registering what another runtime computes otherwise."""

import numpy as np
import onnxruntime
import pytest

from tests import onnx_models as models
from tests.controlplane.registry.house import House

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


def test_a_runtime_that_computes_something_else_of_the_same_file_is_left_out(house: House) -> None:
    """Up to opset 12 ``Softmax`` is over all axes from its own on, of which OpenVINO (2026.4) takes
    the first alone."""
    model = models.model(
        nodes=[
            models.node("Reshape", ("pixels", "square"), "squares"),
            models.node("Softmax", ("squares",), "shares", axis=1),
            models.node("Flatten", ("shares",), "flat", axis=1),
            models.node("MatMul", ("flat", "weight"), "scores"),
        ],
        weights={"square": np.array([-1, 2, 2]), "weight": np.eye(4, 3, dtype=np.float32)},
        opsets=[("", 11)],
    )
    path = models.write(house.folder / "old.onnx", model)
    pixels = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    (scores,) = onnxruntime.InferenceSession(str(path)).run(None, {"pixels": pixels})
    rows = house.folder / "old.npz"
    np.savez(rows, pixels=pixels, labels=scores.argmax(axis=1))
    result = house.register(path=path, evaluation=rows, kinds=("openvino-fp32", "openvino-bf16"))
    assert [one.name for one in result.variants] == ["old-v1-onnx-fp32"]
    why = "openvino computes something else of the model's file: in full precision, "
    told = {one.name: one.reason for one in result.skipped}
    assert told["old-v1-openvino-fp32"].startswith(why)
    if "this CPU does not compute" not in told["old-v1-openvino-bf16"]:
        assert told["old-v1-openvino-bf16"] == told["old-v1-openvino-fp32"]


def test_a_runtime_that_computes_the_same_is_taken(house: House) -> None:
    result = house.register(kinds=("openvino-fp32",))
    assert [one.name for one in result.variants] == ["tiny-v1-onnx-fp32", "tiny-v1-openvino-fp32"]
