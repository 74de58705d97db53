"""The CUDA driver, as little of it as running engines needs, through ctypes.

``libcuda`` comes with every NVIDIA driver, and its interface has been stable for a decade. So there
is no package to install, none to keep in step with TensorRT's CUDA version, and nothing to find but
one well-known name. The context is the device's primary one, which TensorRT, PyTorch and ONNX
Runtime use too; memory and streams are therefore theirs as well as ours.

What the names mean: CUDA Driver API reference, sections 6.2 to 6.18.
"""

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint8, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.errors import RuntimeFailed

LIBRARY = "libcuda.so.1"
_MULTIPROCESSORS, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 16, 75, 76
_STREAM_NON_BLOCKING = 1
_NO_DEVICE = 100
_OWN_CAPTURES = 1
"""``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``."""

_AT_ONCE: Mapping[str, tuple[Any, ...]] = {
    "cuCtxSetCurrent": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_uint64, c_uint8, c_size_t, c_void_p),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}
"""Calls that return at once. They keep the interpreter's lock: to give it up and wait for it again
takes longer than the call, up to 5 ms while the event loop is busy."""

_WAITING: Mapping[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_void_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceGetUuid_v2": (c_void_p, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
}
"""Calls that may take a while. Other threads run meanwhile."""


class Driver:
    """The driver's functions, typed, and its error codes as sentences.

    Args:
        at_once: a library whose functions keep the interpreter's lock.
        waiting: the same library, its functions without that lock.
    """

    def __init__(self, at_once: Any, waiting: Any) -> None:
        self._functions = _typed(at_once, _AT_ONCE) | _typed(waiting, _WAITING)

    @classmethod
    def load(cls, library: str = LIBRARY) -> "Driver":
        """The machine's driver, initialised.

        Raises:
            RuntimeFailed: there is no driver, or no GPU that this process may use.
        """
        try:
            driver = cls(ctypes.PyDLL(library), ctypes.CDLL(library))
        except (OSError, AttributeError) as error:
            raise RuntimeFailed(f"no NVIDIA GPU here: {error}") from error
        driver.start()
        return driver

    def start(self) -> None:
        """Initialise the driver in this process.

        Raises:
            RuntimeFailed: there is no GPU that this process may use.
        """
        code = self._functions["cuInit"](0)
        if code == _NO_DEVICE:
            raise RuntimeFailed("no NVIDIA GPU here that this process may use")
        self._check("cuInit", code)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            RuntimeFailed: it returned an error.
        """
        self._check(name, self._functions[name](*arguments))

    def _check(self, name: str, code: int) -> None:
        if code:
            raise RuntimeFailed(f"CUDA: {name}: {self._text(code)}")

    def _text(self, code: int) -> str:
        said = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            self._functions[function](code, byref(text))
            said.append((text.value or b"").decode(errors="replace"))
        return ": ".join(filter(None, said)) or f"error {code}"


class Device:
    """One GPU, or one MIG instance.

    Its primary context, some hundred MiB on the device, is made when it is first entered, and stays
    for the process's life, as it does in PyTorch and ONNX Runtime: ending it would
    take away what they keep there.
    """

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self._driver = driver
        self._context: c_void_p | None = None
        count, device = c_int(), c_int()
        driver.call("cuDeviceGetCount", byref(count))
        if count.value <= ordinal:
            raise RuntimeFailed("no NVIDIA GPU here that this process may use")
        driver.call("cuDeviceGet", byref(device), ordinal)
        self._device = device.value
        self.name = self._name()
        """``NVIDIA H200``; of a MIG instance with its profile."""
        self.capability = (
            self._attribute(_CAPABILITY_MAJOR),
            self._attribute(_CAPABILITY_MINOR),
        )
        self.multiprocessors = self._attribute(_MULTIPROCESSORS)
        self.uuid = self._uuid()
        """16 bytes as ``xxxxxxxx-xxxx-...``; NVML writes ``GPU-`` or ``MIG-`` in front."""

    def enter(self) -> None:
        """Make the device this thread's. Needed in each thread before all that follows."""
        if self._context is None:
            context = c_void_p()
            self._driver.call("cuDevicePrimaryCtxRetain", byref(context), self._device)
            self._context = context
        self._driver.call("cuCtxSetCurrent", self._context)

    def ignore_recordings(self) -> None:
        """Let this thread go on as ever while others record CUDA graphs.

        Else it may not even wait for a stream of its own meanwhile.
        """
        self._driver.call("cuThreadExchangeStreamCaptureMode", byref(c_int(_OWN_CAPTURES)))

    def allocate(self, size: int) -> int:
        """The address of ``size`` > 0 bytes on the device, aligned to 256 bytes or more."""
        address = c_uint64()
        self._driver.call("cuMemAlloc_v2", byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        self._driver.call("cuMemFree_v2", address)

    def pin(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        """The address of ``size`` > 0 bytes of page-locked host memory, and an array over them.

        Only from such memory are copies asynchronous. The array is void once it was unpinned.
        """
        address = c_void_p()
        self._driver.call("cuMemHostAlloc", byref(address), size, 0)
        assert address.value is not None
        memory = (ctypes.c_uint8 * size).from_address(address.value)
        return address.value, np.ctypeslib.as_array(memory)

    def unpin(self, address: int) -> None:
        self._driver.call("cuMemFreeHost", address)

    def stream(self) -> int:
        """The handle of a new stream, which waits for no other."""
        handle = c_void_p()
        self._driver.call("cuStreamCreate", byref(handle), _STREAM_NON_BLOCKING)
        return handle.value or 0

    def end_stream(self, stream: int) -> None:
        self._driver.call("cuStreamDestroy_v2", stream)

    def upload(self, to: int, source: int, size: int, stream: int) -> None:
        """Copy from host to device once the stream comes to it."""
        self._driver.call("cuMemcpyHtoDAsync_v2", to, source, size, stream)

    def download(self, to: int, source: int, size: int, stream: int) -> None:
        """Copy from device to host once the stream comes to it."""
        self._driver.call("cuMemcpyDtoHAsync_v2", to, source, size, stream)

    def clear(self, to: int, size: int, stream: int) -> None:
        """Fill memory of the device with zeros once the stream comes to it."""
        self._driver.call("cuMemsetD8Async", to, 0, size, stream)

    def wait(self, stream: int) -> None:
        """Return once the stream has done all that was asked of it."""
        self._driver.call("cuStreamSynchronize", stream)

    def _name(self) -> str:
        text = ctypes.create_string_buffer(256)
        self._driver.call("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode(errors="replace")

    def _attribute(self, number: int) -> int:
        value = c_int()
        self._driver.call("cuDeviceGetAttribute", byref(value), number, self._device)
        return value.value

    def _uuid(self) -> str:
        raw = ctypes.create_string_buffer(16)
        self._driver.call("cuDeviceGetUuid_v2", raw, self._device)
        text = raw.raw.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


@cache
def first_device() -> Device:
    """The GPU that was given to this process: Ray and Kubernetes show it no other.

    Raises:
        RuntimeFailed: there is none.
    """
    return Device(Driver.load())


def _typed(library: Any, prototypes: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    functions = {}
    for name, arguments in prototypes.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c_int
        functions[name] = function
    return functions
