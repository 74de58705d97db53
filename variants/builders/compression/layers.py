"""ONNX layers in torch: convolution, pooling, normalisation, resizing. Imports torch."""

from collections.abc import Sequence

import torch
from torch.nn import functional

from variants.builders.compression.operators import (
    OPERATORS,
    Call,
    Operator,
    Tensor,
    Unsupported,
    optional,
)

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
_MAX_POOLS = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_MEAN_POOLS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class _Window:
    """How a kernel moves over an input: everything per spatial axis."""

    def __init__(self, call: Call, kernel: Sequence[int], size: Sequence[int]) -> None:
        axes = len(kernel)
        self.kernel = list(kernel)
        self.strides = list(call.get("strides", [1] * axes))
        self.dilations = list(call.get("dilations", [1] * axes))
        self.begin, self.end = self._pads(call, size)

    def _pads(self, call: Call, size: Sequence[int]) -> tuple[list[int], list[int]]:
        mode, axes = call.text("auto_pad", "NOTSET"), len(self.kernel)
        if mode in ("NOTSET", "VALID"):
            pads = list(call.get("pads", [0] * (2 * axes))) if mode == "NOTSET" else [0] * 2 * axes
            return pads[:axes], pads[axes:]
        total = []
        for axis in range(axes):
            stride, reach = self.strides[axis], (self.kernel[axis] - 1) * self.dilations[axis] + 1
            total.append(max(0, (-(-size[axis] // stride) - 1) * stride + reach - size[axis]))
        less, more = [pad // 2 for pad in total], [pad - pad // 2 for pad in total]
        return (less, more) if mode == "SAME_UPPER" else (more, less)

    @property
    def even(self) -> bool:
        """Whether both ends are padded alike, which torch's own padding does."""
        return self.begin == self.end

    def padded(self, values: Tensor, fill: float) -> Tensor:
        pairs = reversed(list(zip(self.begin, self.end, strict=True)))
        return functional.pad(values, [size for pair in pairs for size in pair], value=fill)


def _conv(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, weight = inputs[:2]
    window = _Window(call, weight.shape[2:], values.shape[2:])
    pads = window.begin
    if not window.even:
        values, pads = window.padded(values, 0.0), [0] * len(pads)
    return _CONVOLUTIONS[weight.dim() - 2](
        values, weight, optional(inputs, 2), window.strides, pads, window.dilations,
        call.get("group", 1),
    )  # fmt: skip


def _conv_transpose(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, weight = inputs[:2]
    if "output_shape" in call.attributes or call.text("auto_pad", "NOTSET") != "NOTSET":
        raise Unsupported("with a given output shape")
    window = _Window(call, weight.shape[2:], values.shape[2:])
    if not window.even:
        raise Unsupported("with uneven padding")
    return _TRANSPOSED[weight.dim() - 2](
        values, weight, optional(inputs, 2), window.strides, window.begin,
        list(call.get("output_padding", [0] * len(window.begin))), call.get("group", 1),
        window.dilations,
    )  # fmt: skip


def _fits(window: _Window) -> bool:
    """Whether torch pads a pool by itself: alike at both ends, by half a kernel at most."""
    halves = zip(window.begin, window.kernel, strict=True)
    return window.even and all(2 * pad <= kernel for pad, kernel in halves)


def _max_pool(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    if call.outputs > 1:
        raise Unsupported("with indices")
    values = inputs[0]
    window = _Window(call, call.attributes["kernel_shape"], values.shape[2:])
    pads = window.begin
    if not _fits(window):
        values, pads = window.padded(values, -torch.inf), [0] * len(pads)
    return _MAX_POOLS[len(pads)](
        values, window.kernel, window.strides, pads, window.dilations,
        bool(call.get("ceil_mode", 0)),
    )  # fmt: skip


def _mean_pool(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values = inputs[0]
    window = _Window(call, call.attributes["kernel_shape"], values.shape[2:])
    if any(step != 1 for step in window.dilations):
        raise Unsupported("with dilation")
    pool, ceil = _MEAN_POOLS[len(window.kernel)], bool(call.get("ceil_mode", 0))
    whole = bool(call.get("count_include_pad", 0))
    if _fits(window):
        return pool(values, window.kernel, window.strides, window.begin, ceil, whole)
    if ceil:
        raise Unsupported("with uneven padding and ceil_mode")
    sums = pool(window.padded(values, 0.0), window.kernel, window.strides)
    if whole:
        return sums
    inside = window.padded(torch.ones_like(values[:1, :1]), 0.0)
    return sums / pool(inside, window.kernel, window.strides)


def _spatial(values: Tensor) -> list[int]:
    return list(range(2, values.dim()))


def _batch_norm(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, scale, bias, mean, variance = inputs
    if call.outputs > 1:
        raise Unsupported("in training mode")
    return functional.batch_norm(
        values, mean, variance, scale, bias, training=False, eps=call.get("epsilon", 1e-5)
    )


def _layer_norm(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    if call.outputs > 1:
        raise Unsupported("with more than one output")
    values, scale = inputs[:2]
    shape = values.shape[call.get("axis", -1) % values.dim() :]
    normal = functional.layer_norm(values, shape, eps=call.get("epsilon", 1e-5)) * scale
    bias = optional(inputs, 2)
    return normal if bias is None else normal + bias


def _rms_norm(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, scale = inputs
    shape = values.shape[call.get("axis", -1) % values.dim() :]
    return functional.rms_norm(values, shape, eps=call.get("epsilon", 1e-5)) * scale


def _instance_norm(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, scale, bias = inputs
    return functional.instance_norm(values, weight=scale, bias=bias, eps=call.get("epsilon", 1e-5))


def _group_norm(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, scale, bias = inputs
    groups = call.attributes["num_groups"]
    if call.opset < 21:  # one scale for each group then, one for each channel now
        share = values.shape[1] // groups
        scale, bias = scale.repeat_interleave(share), bias.repeat_interleave(share)
    return functional.group_norm(values, groups, scale, bias, call.get("epsilon", 1e-5))


def _gemm(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    one, other = inputs[:2]
    one = one.t() if call.get("transA", 0) else one
    other = other.t() if call.get("transB", 0) else other
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    product = one @ other
    product = product if alpha == 1 else alpha * product
    bias = optional(inputs, 2)
    if bias is None:
        return product
    return product + (bias if beta == 1 else beta * bias)


def _resize(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values = inputs[0]
    size = _new_size(call, inputs)
    if size[:2] != list(values.shape[:2]) or values.dim() < 3:
        raise Unsupported("along rows or channels")
    mode = call.text("mode", "nearest")
    grid = call.text(
        "coordinate_transformation_mode", "half_pixel" if call.opset > 10 else "asymmetric"
    )
    if call.get("antialias", 0) or call.get("exclude_outside", 0):
        raise Unsupported("with antialias or exclude_outside")
    spatial = size[2:]
    if mode == "nearest":
        rounding = call.text("nearest_mode", "round_prefer_floor" if call.opset > 10 else "floor")
        if (grid, rounding) == ("asymmetric", "floor"):
            return functional.interpolate(values, spatial, mode="nearest")
        whole = all(new % old == 0 for new, old in zip(spatial, values.shape[2:], strict=True))
        if grid == "half_pixel" and rounding.startswith("round") and whole:
            return functional.interpolate(values, spatial, mode="nearest-exact")
    many = all(length > 1 for length in spatial)
    if mode == "linear" and (
        grid in ("half_pixel", "align_corners") or (grid == "pytorch_half_pixel" and many)
    ):
        return functional.interpolate(
            values, spatial, mode=_LINEAR[len(spatial)], align_corners=grid == "align_corners"
        )
    raise Unsupported(f"with mode {mode!r} and {grid!r}")


def _new_size(call: Call, inputs: Sequence[Tensor]) -> list[int]:
    old = list(inputs[0].shape)
    place = 1 if call.opset == 10 else 2
    scales, sizes = optional(inputs, place), optional(inputs, place + 1)
    axes = [axis % len(old) for axis in call.get("axes", range(len(old)))]
    new = list(old)
    if sizes is not None and sizes.numel():
        if call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Unsupported("that keeps the aspect ratio")
        for axis, size in zip(axes, sizes.tolist(), strict=True):
            new[axis] = int(size)
    elif scales is not None and scales.numel():
        for axis, scale in zip(axes, scales.tolist(), strict=True):
            new[axis] = int(old[axis] * scale)
            if new[axis] != old[axis] * scale:  # ONNX samples at the scale, torch at the sizes
                raise Unsupported(f"by {scale:g} along {old[axis]}")
    return new


def _depth_to_space(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    if call.text("mode", "DCR") != "CRD":
        raise Unsupported("with mode 'DCR'")
    return functional.pixel_shuffle(inputs[0], call.attributes["blocksize"])


def _global_mean(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0].mean(_spatial(inputs[0]), keepdim=True)


def _global_max(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0].amax(_spatial(inputs[0]), keepdim=True)


LAYERS: dict[str, Operator] = OPERATORS | {
    "AveragePool": _mean_pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _depth_to_space,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_mean,
    "GlobalMaxPool": _global_max,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "MaxPool": _max_pool,
    "RMSNormalization": _rms_norm,
    "Resize": _resize,
}
"""All operators that can be trained through."""
