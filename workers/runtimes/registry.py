"""The runtimes by name, each a lazy factory with the libraries and the device that it needs.

A runtime is one file and one line in ``RUNTIMES``. A package outside of this project adds one by an
entry point of the group ``modelless.runtimes`` (docs/reference/bringing-a-model.md). A process
imports only the libraries of the runtimes that it uses.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from variants.entry_points import Entries
from variants.errors import RuntimeFailed
from variants.registry import Entry, load
from workers.runtimes.protocol import Runtime, RuntimeFactory
from workers.types import LoadSpec

GROUP = "modelless.runtimes"
"""The group of entry points by which packages add runtimes."""

RUNTIMES: Mapping[str, Entry] = Entries(
    GROUP,
    {
        "onnx": Entry(
            target="workers.runtimes.onnx:OnnxRuntime",
            needs=("onnxruntime",),
            about="ONNX Runtime, on CPUs and GPUs",
        ),
        "openvino": Entry(
            target="workers.runtimes.openvino:OpenVinoRuntime",
            needs=("openvino",),
            about="OpenVINO",
        ),
        "torch": Entry(
            target="workers.runtimes.pytorch.runtime:TorchRuntime",
            needs=("torch",),
            about="PyTorch, as it is or compiled, on CPUs and GPUs",
        ),
        "tensorrt": Entry(
            target="workers.runtimes.tensorrt.runtime:TensorRtRuntime",
            needs=("tensorrt",),
            device="gpu",
            about="TensorRT engines",
        ),
        "echo": Entry(
            target="workers.runtimes.echo:EchoRuntime",
            about="a fixed time and an echo, for demos and tests",
        ),
    },
)
"""Runtime name to its factory, a ``RuntimeFactory``."""

IMPORTERS: Mapping[str, str] = {
    "openvino": "workers.runtimes.openvino:import_openvino",
    "torch": "workers.runtimes.pytorch.runtime:import_torch",
}
"""Libraries that must not be imported otherwise than by ``module:function``: one reports its use to
its maker, and the threads of the other keep processors busy while they wait."""


def make_runtime(spec: LoadSpec, threads: int) -> Runtime:
    """The runtime that a load spec asks for, not loaded yet.

    Raises:
        RuntimeFailed: it is unknown here, or its library is not installed.
    """
    factory = cast(RuntimeFactory, load("runtime", spec.runtime, RUNTIMES, RuntimeFailed))
    return factory(spec, threads)


def libraries_of(runtime: str) -> tuple[str, ...]:
    """The packages that decide how fast a runtime is; none of an unknown one."""
    entry = RUNTIMES.get(runtime)
    return entry.needs if entry else ()


def import_libraries(runtime: str) -> None:
    """Import the libraries of a runtime; for an unknown one nothing happens.

    Raises:
        ImportError: one is not installed.
    """
    for library in libraries_of(runtime):
        module, _, function = IMPORTERS.get(library, "").partition(":")
        if function:
            getattr(import_module(module), function)()
        else:
            import_module(library)
