"""PyTorch: as it is, or compiled ahead of time; on the CPU or on a GPU."""

import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from variants.errors import RuntimeFailed
from variants.figures import MOST_NAMED, some_of
from workers.runtimes.engine_store import default_folder
from workers.runtimes.gpu_thread import RECORDING
from workers.runtimes.options import Options
from workers.runtimes.protocol import Tensor
from workers.runtimes.signature import Signature
from workers.types import LoadSpec

PRECISIONS = {"fp32": "", "bf16": "bfloat16", "fp16": "float16"}
"""Our names to torch's; in fp32 a program computes as it was exported."""


class TorchRuntime:
    """A variant stored as a ``torch.export`` archive without pickles.

    Inputs are cast to the variant's precision and outputs back, so that the task's types hold.

    Options:
        precision: of weights and arithmetic: ``fp32`` (default), ``bf16`` or ``fp16``.
        threads: how many compute one batch, on a CPU.
        compiled: ``1`` for machine code, made at the first load on a machine and kept.
        provider: ``cuda`` for the process's first GPU; else the CPU.
        engines: the folder in which compiled programs are kept, if not the usual one.
    """

    keeps_inputs = False
    shares_working_memory = True
    """The C library's memory: what a batch has given back is there for the next one."""

    def __init__(self, spec: LoadSpec, threads: int) -> None:
        self._spec = spec
        self._given_threads = threads
        self._threads = threads
        self._name = f"{spec.task}/{spec.variant}"
        self._signature = Signature(spec)
        self._torch: Any = None
        self._call: Callable[[list[Any]], Sequence[Any]] | None = None
        self._device = "cpu"
        self._takes: list[tuple[int, Any]] = []
        """Where each input of the program is among the task's, and its type."""
        self._gives: list[tuple[int, Any]] = []
        """Where each output of the task is among the program's, and its type."""
        self._casts = False

    def load(self) -> None:
        """Read the archive, compile it if that is asked for, and run one row of zeros."""
        options = Options(self._spec)
        precision = PRECISIONS[options.choice("precision", PRECISIONS, "fp32")]
        self._threads = options.threads(self._given_threads)
        self._device = options.choice("provider", ("cpu", "cuda"), "cpu")
        try:
            self._torch = import_torch()
            self._torch.set_num_threads(self._threads)
            if self._device == "cuda":
                self._prepare_gpu()
            self._call = self._prepared(options, precision)
            self._first_run()
        except RuntimeFailed as error:
            self.close()
            why = error.message.removeprefix(f"{self._name} ")
            raise RuntimeFailed(f"{self._name} cannot be loaded: {why}") from error
        except Exception as error:  # torch raises a different type for each cause
            self.close()
            raise RuntimeFailed(f"{self._name} cannot be loaded: {_cause(error)}") from error

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        call, torch = self._call, self._torch
        if call is None:
            raise RuntimeFailed(f"{self._name} is not loaded")
        self._signature.check_inputs(inputs)
        # The number belongs to the thread that runs, and each variant has its own.
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode(), RECORDING if self._device == "cuda" else nullcontext():
                results = call([self._taken(inputs[at], dtype) for at, dtype in self._takes])
                return [self._given(results[at], dtype) for at, dtype in self._gives]
        except Exception as error:  # as above
            raise RuntimeFailed(f"{self._name} failed: {_cause(error)}") from error

    def close(self) -> None:
        self._call = None
        if self._device == "cuda" and self._torch is not None:
            self._torch.cuda.empty_cache()

    # -- steps ------------------------------------------------------------------------------------

    def _prepared(self, options: Options, precision: str) -> Callable[[list[Any]], Sequence[Any]]:
        """The function that runs a batch of the program's inputs."""
        from workers.runtimes.pytorch.program import read_declared, read_program

        dtype = getattr(self._torch, precision) if precision else None
        inputs, outputs = self._spec.inputs, self._spec.outputs
        declared = read_declared(self._spec.path)
        names = [spec.name for spec in inputs]
        takes = _positions(declared.inputs or names, names)
        names = [spec.name for spec in outputs]
        gives = _positions(names, declared.outputs or names)
        self._takes = [(at, self._type(inputs[at].dtype, dtype)) for at in takes]
        self._gives = [
            (at, self._type(spec.dtype)) for at, spec in zip(gives, outputs, strict=True)
        ]
        self._casts = dtype is not None
        if options.choice("compiled", ("", "0", "1"), "") == "1":
            folder = Path(options.text("engines") or default_folder())
            return self._compiled(precision, folder)
        program = read_program(self._spec.path, dtype=dtype, device=self._device)
        if program.takes != len(takes) or program.gives <= max(gives):
            raise RuntimeFailed(
                f"its program takes {program.takes} tensors and gives {program.gives}, "
                f"the task has {len(takes)} and {len(gives)}"
            )
        return lambda tensors: program(*tensors)

    def _compiled(self, precision: str, folder: Path) -> Callable[[list[Any]], Sequence[Any]]:
        from workers.runtimes.pytorch.compiling import Order
        from workers.runtimes.pytorch.packages import package

        order = Order(
            path=self._spec.path,
            precision=precision,
            device=self._device,
            shapes=tuple(self._spec.inputs[at].shape for at, _ in self._takes),
            dtypes=tuple(str(dtype).rpartition(".")[2] for _, dtype in self._takes),
        )
        files = package(order, folder)
        loader = self._torch._C._aoti.AOTIModelPackageLoader(str(files), "model", True, 1, -1)
        run: Callable[[list[Any]], Sequence[Any]] = loader.boxed_run
        return run

    def _first_run(self) -> None:
        """Run a row of zeros; the program has to give the task's types and shapes."""
        assert self._call is not None
        row = [np.zeros((1, *spec.shape), dtype=spec.dtype) for spec in self._spec.inputs]
        for tensor in row:
            tensor.flags.writeable = False
        with warnings.catch_warnings(), self._torch.inference_mode():
            # Torch warns once per process of arrays that are read-only. No program writes.
            warnings.simplefilter("ignore")
            results = self._call([self._taken(row[at], dtype) for at, dtype in self._takes])
            for (at, dtype), spec in zip(self._gives, self._spec.outputs, strict=True):
                has = results[at].dtype
                castable = self._casts and has.is_floating_point and dtype.is_floating_point
                if has != dtype and not castable:
                    raise RuntimeFailed(f"it gives {spec.name} as {has}, the task has {spec.dtype}")
        self._signature.check_outputs(self.run(row), 1)

    def _prepare_gpu(self) -> None:
        torch = self._torch
        if not torch.cuda.is_available():
            raise RuntimeFailed("it needs a GPU, and PyTorch finds none here")
        # Else convolutions round fp32 to 10 bits of mantissa, and fp32 would not mean fp32.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False

    def _type(self, name: str, dtype: Any = None) -> Any:
        """A task's type as torch's, in the variant's precision if that is given."""
        found = getattr(self._torch, name)
        return dtype if dtype is not None and found.is_floating_point else found

    def _taken(self, array: Tensor, dtype: Any) -> Any:
        """A task's input as the program takes it."""
        tensor = self._torch.from_numpy(np.ascontiguousarray(array))
        return tensor.to(self._device, dtype)

    def _given(self, tensor: Any, dtype: Any) -> Tensor:
        """A program's output ``(rows, *shape)`` as an array of its own: it may be a view of an
        input."""
        layout = self._torch.contiguous_format
        copy: Tensor = tensor.to("cpu", dtype, copy=True, memory_format=layout).numpy()
        return copy


LIBRARY = "lib/libtorch_cpu.so"
"""Path of the library within the package's folder."""
SPINS = 50_000
"""Turns of libgomp's waiting loop, about 150 us: a few wake-ups of a sleeping thread."""


def import_torch() -> Any:
    """The ``torch`` package, its threads told to sleep soon while they wait.

    Its OpenMP library lets them spin for milliseconds after each operator: with two threads on two
    shared cores that took 34 to 50 ms of processor time for a batch that needs 4. If they sleep at
    once, every operator has to wake them: two threads were slower than one up to batches of 8. It
    reads the variable once, when it is loaded. docs/decisions/0012 has the measurements.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
    if "torch" not in sys.modules:
        _open_library()
    return import_module("torch")


def _open_library() -> None:
    """Map and link PyTorch's largest library while other threads go on.

    Python holds its lock while it opens a library, and for this one that takes 0.2 to 0.6 s: in a
    worker, no query would be answered meanwhile. A foreign function is called without the lock.
    What cannot be opened here the import will complain of."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return
    with suppress(OSError, AttributeError):  # no such function: not a Unix
        dlopen = ctypes.CDLL(None).dlopen
        dlopen.restype, dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
        dlopen(os.fsencode(Path(found.origin).parent / LIBRARY), os.RTLD_NOW | os.RTLD_LOCAL)


def _positions(names: Sequence[str], among: Sequence[str]) -> list[int]:
    """The position of each name among others."""
    missing = [name for name in names if name not in among]
    if missing:
        raise RuntimeFailed(
            f"it has no {', '.join(missing)}; there are: {some_of(among, MOST_NAMED)}"
        )
    return [among.index(name) for name in names]


def _cause(error: Exception) -> str:
    """The first line of an error; those after it are a stack of C++ functions."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
