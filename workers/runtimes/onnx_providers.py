"""ONNX Runtime on an NVIDIA GPU: its CUDA and TensorRT providers, without a way back to the CPU.

ONNX Runtime falls back in silence: where a provider's libraries are missing it makes a session for
the CPU, and what a provider cannot run goes to the next. A variant that says ``cuda`` and runs on
the CPU would be measured, priced and placed as something that it is not. So each load asks
afterwards where each node went.
"""

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from variants.builders.gpu_requirements import tensorrt_of_onnxruntime
from variants.errors import RuntimeFailed
from workers.runtimes.cuda import Device
from workers.runtimes.engine_store import (
    RANGES,
    BatchRange,
    EngineCache,
    EngineKey,
    default_folder,
    digest_of,
    parse_ranges,
)
from workers.types import LoadSpec

PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
"""Our names to ONNX Runtime's."""
CPU = "CPUExecutionProvider"
FATAL = 4
"""The least severity that ONNX Runtime logs where nothing is set for a session."""

ARITHMETIC = frozenset(
    (
        "Attention", "AveragePool", "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose",
        "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "GRU", "Gemm", "GlobalAveragePool",
        "LSTM", "LayerNormalization", "MatMul", "MatMulInteger", "MaxPool", "QLinearConv",
        "QLinearMatMul", "RNN", "Softmax",
    )
)  # fmt: skip
"""Operators that are a model's work. Others may be on the CPU: ONNX Runtime computes shapes there
on purpose, and a copy to the GPU and back would cost more than the sum of two numbers."""


def tensorrt_version(library: str | None) -> str:
    """Load the TensorRT that ONNX Runtime's provider was linked with: ``TensorRT 101401``.

    Raises:
        RuntimeFailed: it is not here.
    """
    if library is None:
        raise RuntimeFailed("this onnxruntime has no TensorRT provider")
    with suppress(ImportError, OSError):  # loads what its wheel brings; else the loader knows it
        import_module("tensorrt_libs")
    try:
        version = int(ctypes.CDLL(library).getInferLibVersion())
    except (OSError, AttributeError) as error:
        raise RuntimeFailed(f"onnxruntime-gpu needs {library}: {error}") from error
    return f"TensorRT {version}"


def gpu_session(
    ort: Any,
    spec: LoadSpec,
    options: Any,
    *,
    device: Callable[[], Device],
    tensorrt: Callable[[], str] = lambda: tensorrt_version(tensorrt_of_onnxruntime()),
    graphs: bool = False,
) -> Any:
    """A session whose arithmetic is all on the GPU, with the variant's ``provider``.

    ``options`` are session options to complete. With ``graphs`` the session can record CUDA graphs,
    for which all of a model must be on the GPU; else one is made that cannot.

    Raises:
        RuntimeFailed: it would run elsewhere, or not at all.
    """
    told = dict(spec.options)
    wanted = PROVIDERS[told["provider"]]
    if wanted not in ort.get_available_providers():
        raise RuntimeFailed(
            f"this onnxruntime has no {wanted}; install onnxruntime-gpu in its place"
        )
    gpu = device()
    # cuDNN's search for a kernel logs an error for each that does not fit, while queries wait; what
    # really fails raises.
    ort.set_default_logger_severity(FATAL)
    ort.preload_dlls()  # CUDA and cuDNN from their wheels, where they are
    graphs = graphs and wanted == PROVIDERS["cuda"]
    providers = [(PROVIDERS["cuda"], cuda_options(told, graphs=graphs))]
    if wanted == PROVIDERS["tensorrt"]:
        # TensorRT simplifies for itself, and would not know what was fused for others.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        engines = _engines(spec, told, gpu, f"{ort.__version__} with {tensorrt()}")
        providers.insert(0, (wanted, tensorrt_options(spec, told, engines)))
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        session = ort.InferenceSession(spec.path, options, providers=providers, enable_fallback=0)
    except Exception:  # the binding raises a different type for each cause
        if not graphs:
            raise
        return gpu_session(ort, spec, options, device=device, tensorrt=tensorrt)
    assigned = [
        (part.ep_name, [(node.op_type, node.name) for node in part.get_nodes()])
        for part in session.get_provider_graph_assignment_info()
    ]
    if why := fallen_back(wanted, session.get_providers(), assigned):
        raise RuntimeFailed(why)
    return session


def fallen_back(
    wanted: str,
    providers: Sequence[str],
    assigned: Iterable[tuple[str, Sequence[tuple[str, str]]]],
) -> str:
    """Why a session does not do its work where it should, in one sentence; empty when it does.

    Args:
        wanted: the provider's name.
        providers: those that the session has.
        assigned: for each part of the graph, its provider, and its nodes as (operator, name).
    """
    if wanted not in providers:
        return (
            f"{wanted} could not be started and ONNX Runtime would fall back to the CPU: "
            "its CUDA, cuDNN or TensorRT libraries are missing, or do not fit the driver"
        )
    used = False
    for name, nodes in assigned:
        used = used or name == wanted
        for operator, node in nodes:
            if name == CPU and operator in ARITHMETIC:
                return f"{wanted} cannot run node {node!r} ({operator}), which fell to the CPU"
    return "" if used else f"{wanted} took no part of the model"


def records_graphs(session: Any) -> bool:
    """Whether a session can record CUDA graphs."""
    told = session.get_provider_options().get(PROVIDERS["cuda"], {})
    return str(told.get("enable_cuda_graph", "0")) == "1"


def cuda_options(told: Mapping[str, str], *, graphs: bool = False) -> dict[str, str]:
    """How the CUDA provider is to run a variant."""
    return {
        "enable_cuda_graph": str(int(graphs)),
        "device_id": "0",
        "use_tf32": told.get("tf32", "0"),  # else fp32 is not what runs
        # The default tries all kernels whenever a batch size is new, while a query waits.
        "cudnn_conv_algo_search": "HEURISTIC",
        # The default doubles what it takes, out of memory that is other variants'.
        "arena_extend_strategy": "kSameAsRequested",
    }


def tensorrt_options(
    spec: LoadSpec, told: Mapping[str, str], engines: Path | None
) -> dict[str, str]:
    """How the TensorRT provider is to run a variant: one profile for all batch sizes.

    The precision is the file's: with neither ``trt_fp16_enable`` nor ``trt_int8_enable``, the
    provider makes strongly typed networks.
    """
    ranges = _ranges(told)
    least, most = _shapes(spec, ranges[0].low), _shapes(spec, ranges[-1].high)
    options = {
        "device_id": "0",
        "trt_profile_min_shapes": least,
        "trt_profile_opt_shapes": most,
        "trt_profile_max_shapes": most,
    }
    if engines is not None:
        options |= {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(engines),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(engines),
        }
    return options


def _engines(spec: LoadSpec, told: Mapping[str, str], gpu: Device, builder: str) -> Path | None:
    """The folder in which ONNX Runtime keeps the engines of this artifact; None for nowhere.

    It would take one of another model of the same structure, or of another TensorRT, for its own;
    in a folder for each there is none.
    """
    key = EngineKey(
        builder=f"ONNX Runtime {builder}",
        gpu=gpu.name,
        capability=gpu.capability,
        multiprocessors=gpu.multiprocessors,
        artifact=digest_of(Path(spec.path).read_bytes()),
        outputs=tuple(sorted(tensor.name for tensor in spec.outputs)),
        ranges=_ranges(told),
        options=(("tf32", told.get("tf32", "0")),),
    )
    folder = Path(told["engines"]) if "engines" in told else default_folder()
    return EngineCache(folder).subfolder(key.digest)


def _ranges(told: Mapping[str, str]) -> tuple[BatchRange, ...]:
    return parse_ranges(told.get("ranges", RANGES))


def _shapes(spec: LoadSpec, rows: int) -> str:
    """``x:8x3x224x224,mask:8x16``."""
    return ",".join(
        f"{tensor.name}:{'x'.join(map(str, (rows, *tensor.shape)))}" for tensor in spec.inputs
    )
