"""PyTorch programs compiled ahead of time to machine code.

Ahead of time rather than by ``torch.compile``, because that compiles again, for seconds, when a
batch size comes that it has not seen, and checks guards on every call. Compiling runs in a process
of its own: it takes 20 s of processor time and half a gigabyte, and a worker that did it itself
would answer no query meanwhile. ``python -m workers.runtimes.pytorch.compiling``, told by one line
of JSON on its standard input, is that process."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from variants.errors import RuntimeFailed

COMPILER = "g++"
TIME_LIMIT_S = 900.0
_ROOT = Path(__file__).resolve().parents[3]
_PR_SET_PDEATHSIG = 1
_NICER = 5
"""Compiling yields to serving."""
_TRACED_ROWS = 4
"""Any number but 0 and 1, which tracing takes for constants."""

CONFIGURATION: dict[str, Any] = {
    "freezing": True,  # weights are constants: folded, and laid out for the processor
    "cpp.dynamic_threads": True,  # as many as torch is told when it runs
    "compile_threads": 1,
    "cpp.vec_isa_ok": True,  # what the processor says of itself needs no test programs
    "aot_inductor.precompile_headers": False,  # they pay from the second program on
    "aot_inductor.enable_line_tables": False,  # half of the package, for debugging it
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be compiled."""

    path: str
    precision: str
    """Name of a ``torch.dtype``; empty: as it was exported."""
    device: str
    """``cpu`` or ``cuda``."""
    shapes: tuple[tuple[int, ...], ...]
    """The shape of one row of each input, in the program's order."""
    dtypes: tuple[str, ...]
    """The types of the inputs, as they are given to the program."""


def compile_apart(order: Order) -> bytes:
    """The program as an AOTInductor package, a zip, made in a process of its own.

    Raises:
        RuntimeFailed: it cannot be compiled.
    """
    if shutil.which(COMPILER) is None:
        raise RuntimeFailed(f"compiling needs a C++ compiler, and there is no {COMPILER} here")
    with tempfile.TemporaryDirectory(prefix="modelless-compile-") as folder:
        target = Path(folder) / "compiled.pt2"
        request = {"order": asdict(order), "target": str(target), "folder": folder}
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "workers.runtimes.pytorch.compiling"],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                cwd=_ROOT,
                timeout=TIME_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeFailed(f"compiling took more than {TIME_LIMIT_S:,g} s") from None
        if done.returncode or not target.is_file():
            said = done.stderr.strip().splitlines() or [f"its process ended by {done.returncode}"]
            raise RuntimeFailed(f"compiling failed: {said[-1][:300]}")
        return target.read_bytes()


def _module(function: Any, weights: Sequence[Any]) -> Any:
    """A program as a module, which is what exporting takes."""
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            frozen = [torch.nn.Parameter(weight, requires_grad=False) for weight in weights]
            self.weights = torch.nn.ParameterList(frozen)

        def forward(self, *inputs: Any) -> Any:
            return function(*self.weights, *inputs)

    return Module()


def compile_to(order: Order, target: Path) -> None:
    """Compile in this process. Takes seconds and a lot of memory."""
    import torch

    from workers.runtimes.pytorch.program import read_program

    torch.set_num_threads(1)
    dtype = getattr(torch, order.precision) if order.precision else None
    program = read_program(order.path, dtype=dtype, device=order.device)
    # Seconds, which what is no program does not need.
    from torch._inductor import aoti_compile_and_package

    rows = torch.export.Dim("batch")
    example = tuple(
        torch.zeros(_TRACED_ROWS, *shape, dtype=getattr(torch, dtype), device=order.device)
        for shape, dtype in zip(order.shapes, order.dtypes, strict=True)
    )
    with torch.no_grad():
        exported = torch.export.export(
            _module(program.function, program.weights),
            example,
            dynamic_shapes=(tuple({0: rows} for _ in example),),
        )
        aoti_compile_and_package(
            exported,
            package_path=str(target),
            inductor_configs=dict(CONFIGURATION),
        )


def main() -> None:
    request = json.loads(sys.stdin.readline())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICER)
    # Otherwise in a folder of a well-known name that another user may have made first.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = request["folder"]
    told = request["order"]
    told["shapes"] = tuple(tuple(shape) for shape in told["shapes"])
    told["dtypes"] = tuple(told["dtypes"])
    try:
        compile_to(Order(**told), Path(request["target"]))
    except RuntimeFailed as error:
        sys.exit(error.message)
    except Exception as error:  # the compiler passes on whatever its parts raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        sys.exit(f"{type(error).__name__}: {lines[0] if lines else ''}")


if __name__ == "__main__":
    main()
