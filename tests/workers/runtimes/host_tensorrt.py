"""TensorRT on the host: the part of its Python interface that the runtime uses, over ONNX Runtime.

An engine is the ONNX file behind a line of JSON; running it reads and writes ``HostCuda``'s memory
when a thread waits for the stream. It refuses what TensorRT refuses: shapes outside the profile,
tensors without an address, missing scratch memory, plans of another version. ``tests/gpu`` holds it
against the real one.
"""

import ctypes
import json
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.workers.runtimes.host_cuda import HostCuda

SCRATCH_BYTES = 4096
_MAGIC = b"host plan\n"
_CACHE = b"host timings\n"

Shape = tuple[int, ...]
STAND_INS = {
    "HostBuilder": "Builder",
    "HostConfig": "IBuilderConfig",
    "HostContext": "IExecutionContext",
    "HostEngine": "ICudaEngine",
    "HostNetwork": "INetworkDefinition",
    "HostParser": "OnnxParser",
    "HostProfile": "IOptimizationProfile",
    "HostRuntime": "Runtime",
    "HostTimingCache": "ITimingCache",
}
"""Classes of this module and those of TensorRT's whose place they take, by name."""


class Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3


class ILogger:
    INTERNAL_ERROR, ERROR = Severity.INTERNAL_ERROR, Severity.ERROR
    WARNING, INFO = Severity.WARNING, Severity.INFO

    def log(self, severity: Severity, msg: str) -> None:
        raise NotImplementedError


class TensorIOMode(IntEnum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(IntEnum):
    DEVICE = 0
    HOST = 1


class MemoryPoolType(IntEnum):
    WORKSPACE = 0


class BuilderFlag(IntEnum):
    TF32 = 7


class ExecutionContextAllocationStrategy(IntEnum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class HostTensorRt:
    """The module. Public attributes in lower case are for tests."""

    ILogger = ILogger
    TensorIOMode = TensorIOMode
    TensorLocation = TensorLocation
    MemoryPoolType = MemoryPoolType
    BuilderFlag = BuilderFlag
    ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy

    def __init__(self, cuda: HostCuda, version: str = "11.4.0.106") -> None:
        self.__version__ = version
        self.cuda = cuda
        self.plans: list[dict[str, Any]] = []
        """What each build was told."""
        self.ran: list[tuple[int, int]] = []
        """Profile and rows of each batch."""
        self.refuse_to_build = False
        self.fail_on_device = False
        self.fail_to_set_shapes = False
        self.tells_the_first_range = False
        """Of outputs, engines tell the rows of their first range, as TensorRT 8.6 does."""
        self.keeps_the_first_range = False
        """And that is what they compute, whatever the batch."""

    def Builder(self, logger: Any) -> "HostBuilder":
        return HostBuilder(self, logger)

    def OnnxParser(self, network: "HostNetwork", logger: Any) -> "HostParser":
        return HostParser(network)

    def Runtime(self, logger: Any) -> "HostRuntime":
        return HostRuntime(self, logger)

    @staticmethod
    def nptype(dtype: str) -> Any:
        return np.dtype(dtype).type


class HostNetwork:
    def __init__(self) -> None:
        self.onnx = b""
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def get_input(self, index: int) -> Any:
        return self.inputs[index]

    def get_output(self, index: int) -> Any:
        return self.outputs[index]

    def unmark_output(self, tensor: Any) -> None:
        self.outputs.remove(tensor)


class HostParser:
    def __init__(self, network: HostNetwork) -> None:
        self._network = network
        self._error = ""

    @property
    def num_errors(self) -> int:
        return int(bool(self._error))

    def get_error(self, index: int) -> Any:
        return SimpleNamespace(
            desc=lambda: self._error, node_operator=lambda: "", node_name=lambda: ""
        )

    def parse(self, model: bytes) -> bool:
        import onnx

        try:
            graph = onnx.load_model_from_string(model).graph
        except Exception as error:
            self._error = f"Failed to parse ONNX model: {error}"
            return False
        network = self._network
        network.onnx = model
        network.inputs = [_tensor(value) for value in graph.input]
        network.outputs = [_tensor(value) for value in graph.output]
        return True


class HostProfile:
    def __init__(self) -> None:
        self.shapes: dict[str, tuple[Shape, Shape, Shape]] = {}

    def set_shape(self, input: str, min: Shape, opt: Shape, max: Shape) -> None:
        if not all(a <= b <= c for a, b, c in zip(min, opt, max, strict=True)):
            raise ValueError("the profile's shapes do not ascend")
        self.shapes[input] = (min, opt, max)


class HostTimingCache:
    def __init__(self, entries: int) -> None:
        self.entries = entries

    def serialize(self) -> bytes:
        return _CACHE + bytes(self.entries)


class HostConfig:
    def __init__(self) -> None:
        self.builder_optimization_level = 3
        self.profiles: list[HostProfile] = []
        self.pools: dict[str, int] = {}
        self.flags = {BuilderFlag.TF32}
        self.cache: HostTimingCache | None = None

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        self.pools[pool.name] = pool_size

    def clear_flag(self, flag: BuilderFlag) -> None:
        self.flags.discard(flag)

    def add_optimization_profile(self, profile: HostProfile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: bytes) -> HostTimingCache | None:
        if serialized_timing_cache and not serialized_timing_cache.startswith(_CACHE):
            return None
        return HostTimingCache(max(0, len(serialized_timing_cache) - len(_CACHE)))

    def set_timing_cache(self, cache: HostTimingCache, ignore_mismatch: bool) -> bool:
        self.cache = cache
        return True

    def get_timing_cache(self) -> HostTimingCache | None:
        return self.cache


class HostBuilder:
    def __init__(self, trt: HostTensorRt, logger: ILogger) -> None:
        self._trt = trt
        self._logger = logger
        self.max_threads = 1

    def create_network(self, flags: int = 0) -> HostNetwork:
        return HostNetwork()

    def create_builder_config(self) -> HostConfig:
        return HostConfig()

    def create_optimization_profile(self) -> HostProfile:
        return HostProfile()

    def build_serialized_network(self, network: HostNetwork, config: HostConfig) -> bytes | None:
        if self._trt.refuse_to_build:
            self._logger.log(Severity.ERROR, "Error Code 10: could not find any implementation")
            return None
        told = {
            "version": self._trt.__version__,
            "profiles": [profile.shapes for profile in config.profiles],
            "outputs": [tensor.name for tensor in network.outputs],
            "level": config.builder_optimization_level,
            "pools": config.pools,
            "tf32": BuilderFlag.TF32 in config.flags,
            "threads": self.max_threads,
            "timings": config.cache.entries if config.cache else None,
        }
        self._trt.plans.append(told)
        if config.cache is not None:
            config.cache.entries += 1
        return _MAGIC + json.dumps(told).encode() + b"\n" + network.onnx


class HostRuntime:
    def __init__(self, trt: HostTensorRt, logger: ILogger) -> None:
        self._trt = trt
        self._logger = logger

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> "HostEngine | None":
        told: dict[str, Any] = {}
        if serialized_engine.startswith(_MAGIC):
            _, line, onnx = serialized_engine.split(b"\n", 2)
            told = json.loads(line)
        if told.get("version") != self._trt.__version__:
            self._logger.log(Severity.ERROR, "Error Code 6: the engine is of another version")
            return None
        return HostEngine(self._trt, told, onnx)


class HostEngine:
    device_memory_size_v2 = SCRATCH_BYTES

    def __init__(self, trt: HostTensorRt, told: dict[str, Any], onnx: bytes) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
        self.trt = trt
        self.profiles: list[dict[str, Any]] = told["profiles"]
        inputs = {node.name: node for node in self.session.get_inputs()}
        outputs = {n.name: n for n in self.session.get_outputs() if n.name in told["outputs"]}
        self.nodes = inputs | outputs
        self.inputs = [str(name) for name in inputs]
        self.outputs = [str(name) for name in outputs]
        self._weights = trt.cuda.allocate(len(onnx))
        self._weights_bytes = len(onnx)

    def __del__(self) -> None:
        self.trt.cuda.free(self._weights)

    @property
    def num_io_tensors(self) -> int:
        return len(self.inputs) + len(self.outputs)

    def get_tensor_name(self, index: int) -> str:
        return [*self.inputs, *self.outputs][index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.DEVICE

    def get_tensor_dtype(self, name: str) -> str:
        kind = str(self.nodes[name].type).removeprefix("tensor(").removesuffix(")")
        return str({"float": "float32", "double": "float64"}.get(kind, kind))

    def get_tensor_shape(self, name: str) -> Shape:
        rows, *shape = (n if isinstance(n, int) else -1 for n in self.nodes[name].shape)
        if self.trt.tells_the_first_range and name in self.outputs:
            rows = 1
        return (rows, *shape)

    def create_execution_context(
        self,
        strategy: ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy.STATIC,
    ) -> "HostContext":
        return HostContext(self, strategy)


class HostContext:
    def __init__(self, engine: HostEngine, strategy: ExecutionContextAllocationStrategy) -> None:
        self._engine = engine
        self._cuda = engine.trt.cuda
        self._own_memory = strategy is not ExecutionContextAllocationStrategy.USER_MANAGED
        self._memory = (0, 0)
        self._addresses: dict[str, int] = {}
        self._shapes: dict[str, Shape] = {}
        self._profile = 0

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        if not 0 <= profile_index < len(self._engine.profiles):
            return False
        self._profile = profile_index
        self._shapes.clear()
        self._cuda.streams[stream_handle].append(lambda: None)
        return True

    def set_device_memory(self, memory: int, size: int) -> None:
        self._memory = (memory, size)

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return name in self._engine.nodes

    def set_input_shape(self, name: str, shape: Shape) -> bool:
        low, _, high = self._engine.profiles[self._profile][name]
        fits = len(shape) == len(low) and all(
            a <= n <= b for a, n, b in zip(low, shape, high, strict=True)
        )
        if fits:
            self._shapes[name] = shape
        return fits and not self._engine.trt.fail_to_set_shapes

    def get_tensor_shape(self, name: str) -> Shape:
        rows, *_ = next(iter(self._shapes.values()))
        if self._engine.trt.keeps_the_first_range:
            rows = 1
        return (rows, *self._engine.get_tensor_shape(name)[1:])

    def execute_async_v3(self, stream_handle: int) -> bool:
        engine = self._engine
        memory = self._own_memory or (
            self._memory[1] >= SCRATCH_BYTES and self._cuda.on_device(*self._memory)
        )
        if not memory or set(self._shapes) != set(engine.inputs):
            return False
        if set(self._addresses) != set(engine.nodes):
            return False
        shapes = dict(self._shapes)
        engine.trt.ran.append((self._profile, shapes[engine.inputs[0]][0]))
        self._cuda.streams[stream_handle].append(lambda: self._execute(shapes))
        return True

    def _execute(self, shapes: dict[str, Shape]) -> None:
        assert not self._engine.trt.fail_on_device
        feeds = {name: self._read(name, shape) for name, shape in shapes.items()}
        results = self._engine.session.run(self._engine.outputs, feeds)
        for name, result in zip(self._engine.outputs, results, strict=True):
            data = np.ascontiguousarray(result)
            assert self._cuda.on_device(self._addresses[name], data.nbytes)
            ctypes.memmove(self._addresses[name], data.ctypes.data, data.nbytes)

    def _read(self, name: str, shape: Shape) -> Any:
        data = np.empty(shape, self._engine.get_tensor_dtype(name))
        assert self._cuda.on_device(self._addresses[name], data.nbytes)
        ctypes.memmove(data.ctypes.data, self._addresses[name], data.nbytes)
        return data


def _tensor(value: Any) -> Any:
    dims = value.type.tensor_type.shape.dim
    shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dims)
    return SimpleNamespace(name=value.name, shape=shape, is_shape_tensor=False)
