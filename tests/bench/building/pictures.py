"""Pictures of ten kinds, made here, and a last layer that tells them apart: accuracy for a network
whose other weights are random."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

Array = NDArray[Any]

KINDS = 10
WAVES = 4
NOISE = 0.3
RIDGE = 300.0
SETTLING = 32
"""Images that normalisations are set by."""


def pictures(count: int, image: int, *, seed: int) -> tuple[Array, Array]:
    """``(count, 3, image, image)`` and their kinds ``(count,)``.

    A kind is a few waves, each with a direction, a length and a colour; a picture has them at other
    phases and strengths, with noise over them.
    """
    kinds = np.random.default_rng(seed).integers(0, KINDS, count)
    random = np.random.default_rng([seed, 1])
    across = np.linspace(0, 1, image, dtype=np.float32)
    found = np.empty((count, 3, image, image), dtype=np.float32)
    for index, kind in enumerate(kinds):
        found[index] = random.normal(0, NOISE, found[index].shape)
        found[index] += random.normal(0, 0.5, (3, 1, 1))
        own = np.random.default_rng([2, kind])
        for _ in range(WAVES):
            right, down = own.normal(0, 40, 2)
            colour = own.standard_normal((3, 1, 1)).astype(np.float32)
            phase = right * across + down * across[:, None] + random.uniform(0, 6)
            found[index] += colour * np.sin(phase) * random.uniform(0.3, 1)
    return found, kinds


def settle(model: Any, images: Array) -> None:
    """Set every normalisation of ``resnet18`` to what it would have learnt on the images: mean 0
    and variance 1 in front of its scale.

    Without, a random network says nearly the same to all images, and rounding drowns the rest.
    """
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in [node for node in model.graph.node if node.op_type == "BatchNormalization"]:
        values = run(model, node.input[0], images).astype(np.float64)
        moments = (values.mean((0, 2, 3)), values.var((0, 2, 3)))
        for name, moment in zip(node.input[3:5], moments, strict=True):
            found = onnx.numpy_helper.from_array(moment.astype(np.float32), name)
            held[name].CopyFrom(found)


def run(model: Any, tensor: str, images: Array) -> Array:
    """One tensor of a model for all images."""
    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.output[:]
    part.graph.output.append(onnx.ValueInfoProto(name=tensor))
    makers = {name: node for node in part.graph.node for name in node.output}
    needed: set[str] = set()
    open_ends = [tensor]
    while open_ends:
        maker = makers.get(open_ends.pop())
        if maker is not None and maker.name not in needed:
            needed.add(maker.name)
            open_ends += maker.input
    kept = [node for node in model.graph.node if node.name in needed]
    del part.graph.node[:]
    part.graph.node.extend(kept)
    options = ort.SessionOptions()
    options.log_severity_level = 4  # that weights of the other layers are left over
    session = ort.InferenceSession(
        part.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    starts = range(0, len(images), 8)
    return np.concatenate([session.run(None, {"images": images[s : s + 8]})[0] for s in starts])


def teach(source: Path, target: Path, images: Array, kinds: Array) -> None:
    """Replace the last layer of ``resnet18`` by one fitted to pictures: ridge regression of the
    kinds on what comes out of the layers before it."""
    model = onnx.load(source)
    settle(model, images[:SETTLING])
    features = run(model, "flat", images).astype(np.float64)
    mean, spread = features.mean(0), features.std(0) + 1e-9
    scaled = (features - mean) / spread
    wanted = np.eye(KINDS)[kinds] - 1 / KINDS
    weight = np.linalg.solve(scaled.T @ scaled + RIDGE * np.eye(len(mean)), scaled.T @ wanted)
    weight /= spread[:, None]
    held = {"head_weight": weight.T, "head_bias": 1 / KINDS - mean @ weight}
    for tensor in model.graph.initializer:
        if tensor.name in held:
            values = held[tensor.name].astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = KINDS
    onnx.save(model, target)
