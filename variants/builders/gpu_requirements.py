"""What variants for GPUs need, and whether it is here; found out without importing any of it."""

import re
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

_LOADER_CACHE = Path("etc/ld.so.cache")
"""Where the dynamic loader keeps the names of all libraries that the system has installed."""


def missing_gpu(root: Path = Path("/")) -> str | None:
    """``no NVIDIA GPU here``, or None where there is one. ``root`` is the file system to look at.

    The driver lists its GPUs in ``/proc``; under WSL there is a device of another name instead.
    """
    listed = root / "proc/driver/nvidia/gpus"
    if (listed.is_dir() and any(listed.iterdir())) or (root / "dev/dxg").exists():
        return None
    return "no NVIDIA GPU here"


def missing_onnxruntime_gpu() -> str | None:
    """Whether the ``onnxruntime`` that is installed is the one for CPUs only."""
    if _folder() is None:
        return "onnxruntime-gpu is not installed; pip install it in place of onnxruntime"
    return None


def missing_tensorrt_of_onnxruntime(root: Path = Path("/")) -> str | None:
    """Whether the TensorRT that onnxruntime-gpu was linked with is there.

    It need not be the one that we run engines with: onnxruntime-gpu 1.31 is linked with TensorRT
    10. Their wheels exclude each other, the libraries themselves do not.
    """
    if why := missing_onnxruntime_gpu():
        return why
    library = tensorrt_of_onnxruntime()
    if library is None:
        return "this onnxruntime-gpu has no TensorRT provider"
    found = find_spec("tensorrt_libs")
    folders = found.submodule_search_locations or [] if found else []
    if any((Path(folder) / library).exists() for folder in folders):
        return None
    try:
        installed = (root / _LOADER_CACHE).read_bytes()
    except OSError:
        installed = b""
    if library.encode() + b"\0" in installed:
        return None
    major = library.rpartition(".")[2]
    return f"onnxruntime-gpu needs TensorRT {major}; pip install 'tensorrt-cu13-libs=={major}.*'"


def tensorrt_of_onnxruntime() -> str | None:
    """The library that ONNX Runtime's TensorRT provider was linked with: ``libnvinfer.so.10``.

    None where there is no such provider.
    """
    folder = _folder()
    provider = folder and folder / "onnxruntime/capi/libonnxruntime_providers_tensorrt.so"
    if not provider or not provider.is_file():
        return None
    found = re.search(rb"libnvinfer\.so\.\d+", provider.read_bytes())
    return found[0].decode() if found else None


def _folder() -> Path | None:
    """Where ONNX Runtime for GPUs is installed; None where it is not."""
    try:
        return Path(str(distribution("onnxruntime-gpu").locate_file("")))
    except PackageNotFoundError:
        return None
