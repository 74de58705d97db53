"""Building a TensorRT 11 engine from ONNX: what it is told, and what it refuses.

Networks are strongly typed, always, since TensorRT 11: the ONNX file says in which precision each
tensor is computed, so fp16 comes as a converted file and int8 as one with Q/DQ pairs. There is no
flag for either.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from variants.errors import RuntimeFailed
from workers.runtimes.engine_store import (
    RANGES,
    BatchRange,
    EngineKey,
    default_folder,
    parse_ranges,
)
from workers.types import LoadSpec

MAJOR = 11
WORKSPACE_MIB = 1024
"""Scratch memory that one layer may take. Unlimited, a kernel that is 1 % faster may take it all
from the other variants on the GPU."""
LEVEL = 3
"""TensorRT's own default of how hard it searches, from 0 to 5."""


def import_tensorrt() -> Any:
    """The ``tensorrt`` module.

    Raises:
        RuntimeFailed: it is not installed, or has another major version.
    """
    try:
        trt = import_module("tensorrt")
    except (ImportError, OSError) as error:
        raise RuntimeFailed(f"tensorrt is not installed here: {error}") from error
    if not str(trt.__version__).startswith(f"{MAJOR}."):
        raise RuntimeFailed(f"TensorRT {MAJOR} is needed, and {trt.__version__} is installed")
    return trt


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What a variant's options say of its engine."""

    ranges: tuple[BatchRange, ...]
    workspace_mib: int
    level: int
    tf32: bool
    """Whether fp32 products may be rounded to 10 bits of mantissa."""
    folder: Path
    """Where engines are kept."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "PlanOptions":
        """Read ``ranges``, ``workspace_mib``, ``level``, ``tf32`` and ``engines``.

        Raises:
            RuntimeFailed: one of them is wrong.
        """
        return cls(
            ranges=parse_ranges(options.get("ranges", RANGES)),
            workspace_mib=_number(options, "workspace_mib", WORKSPACE_MIB, 1, 1 << 20),
            level=_number(options, "level", LEVEL, 0, 5),
            tf32=bool(_number(options, "tf32", 0, 0, 1)),
            folder=Path(options["engines"]) if "engines" in options else default_folder(),
        )

    def key(self, version: str, device: Any, artifact: str, spec: LoadSpec) -> EngineKey:
        """What the engine of an artifact depends on, on a ``workers.runtimes.cuda.Device``."""
        return EngineKey(
            builder=f"TensorRT {version}",
            gpu=device.name,
            capability=device.capability,
            multiprocessors=device.multiprocessors,
            artifact=artifact,
            outputs=tuple(sorted(tensor.name for tensor in spec.outputs)),
            ranges=self.ranges,
            options=(
                ("level", str(self.level)),
                ("tf32", str(int(self.tf32))),
                ("workspace_mib", str(self.workspace_mib)),
            ),
        )


def timing_key(version: str, device: Any) -> EngineKey:
    """The key under which a GPU's timings of kernels are kept; every engine built for it uses
    them."""
    return EngineKey(
        builder=f"timings of TensorRT {version}",
        gpu=device.name,
        capability=device.capability,
        multiprocessors=device.multiprocessors,
        artifact="",
        outputs=(),
        ranges=(),
    )


def build_plan(
    trt: Any,
    logger: Any,
    onnx: bytes,
    spec: LoadSpec,
    options: PlanOptions,
    *,
    threads: int,
    timings: bytes,
    said: Callable[[], str],
) -> tuple[bytes, bytes]:
    """An engine for this GPU, serialised, and the timings of kernels, ``timings`` among them.

    ``said`` gives the errors that TensorRT logged since it was last called.

    Raises:
        RuntimeFailed: TensorRT cannot take the model.
    """
    builder = trt.Builder(logger)
    builder.max_threads = threads
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx):
        raise RuntimeFailed(f"TensorRT cannot take the model: {_parse_error(parser) or said()}")
    _check_inputs(network, spec)
    _keep_outputs(network, spec)
    config = builder.create_builder_config()
    config.builder_optimization_level = options.level
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_mib * 2**20)
    if not options.tf32:  # on by default, and then fp32 is not what runs
        config.clear_flag(trt.BuilderFlag.TF32)
    for each in options.ranges:
        _add_profile(builder, config, spec, each)
    cache = config.create_timing_cache(timings) or config.create_timing_cache(b"")
    if cache is not None and not config.set_timing_cache(cache, False):
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, False)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeFailed(f"TensorRT cannot build the engine: {said()}")
    grown = config.get_timing_cache()
    return bytes(plan), b"" if grown is None else bytes(grown.serialize())


def _check_inputs(network: Any, spec: LoadSpec) -> None:
    wants = {tensor.name: tensor.shape for tensor in spec.inputs}
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    if {tensor.name for tensor in inputs} != set(wants):
        has = ", ".join(sorted(tensor.name for tensor in inputs))
        raise RuntimeFailed(f"it takes inputs {has}, the task has {', '.join(sorted(wants))}")
    for tensor in inputs:
        if tensor.is_shape_tensor:
            raise RuntimeFailed(f"input {tensor.name!r} decides on shapes")
        shape = tuple(tensor.shape)
        if not shape or shape[0] != -1:
            raise RuntimeFailed(f"input {tensor.name!r} has a fixed batch axis: {[*shape]}")
        fits = len(shape) == len(wants[tensor.name]) + 1 and all(
            has in (-1, want) for has, want in zip(shape[1:], wants[tensor.name], strict=True)
        )
        if not fits:
            raise RuntimeFailed(
                f"input {tensor.name!r} has rows of {shape[1:]}, the task of {wants[tensor.name]}"
            )


def _keep_outputs(network: Any, spec: LoadSpec) -> None:
    """Leave out what the task does not ask for: it needs neither time nor memory."""
    wanted = {tensor.name for tensor in spec.outputs}
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    missing = wanted - {tensor.name for tensor in outputs}
    if missing:
        raise RuntimeFailed(f"it has no output {', '.join(sorted(missing))}")
    for tensor in outputs:
        if tensor.name not in wanted:
            network.unmark_output(tensor)


def _add_profile(builder: Any, config: Any, spec: LoadSpec, each: BatchRange) -> None:
    """One set of kernels for a range of batch sizes, chosen for its largest: there it counts."""
    profile = builder.create_optimization_profile()
    for tensor in spec.inputs:
        low, high = (each.low, *tensor.shape), (each.high, *tensor.shape)
        profile.set_shape(tensor.name, low, high, high)
    if config.add_optimization_profile(profile) < 0:
        raise RuntimeFailed(f"TensorRT refuses batches of {each}")


def _parse_error(parser: Any) -> str:
    """The first thing the parser could not take: ``node 'conv1' (Conv): ...``."""
    if not parser.num_errors:
        return ""
    error = parser.get_error(0)
    text = " ".join(str(error.desc()).split())[:300]
    kind, name = error.node_operator(), error.node_name()
    return f"node {name!r} ({kind}): {text}" if kind else text


def _number(options: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not least <= int(text) <= most:
        raise RuntimeFailed(f"option {name} is a whole number from {least} to {most}, not {text!r}")
    return int(text)
