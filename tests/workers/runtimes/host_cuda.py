"""A CUDA driver whose device memory is host memory: the functions of ``libcuda`` that are used.

They are C functions, made by ctypes, so that calls pass through the same conversions as on a GPU.
It is strict where a GPU is silent or crashes: what a stream was asked to do is done when a thread
waits for it, a call in a thread that has not entered the context fails, and so does one byte beyond
an allocation.
"""

import ctypes
import threading
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint64,
    c_void_p,
)
from typing import Any

from workers.runtimes.cuda import Device, Driver

INVALID_VALUE, NO_DEVICE, INVALID_CONTEXT, ILLEGAL_ADDRESS = 1, 100, 201, 700
NAMES = {
    INVALID_VALUE: (b"CUDA_ERROR_INVALID_VALUE", b"invalid argument"),
    INVALID_CONTEXT: (b"CUDA_ERROR_INVALID_CONTEXT", b"invalid device context"),
    ILLEGAL_ADDRESS: (b"CUDA_ERROR_ILLEGAL_ADDRESS", b"an illegal memory access was encountered"),
}
CONTEXT = 0xC0


class HostCuda:
    """The library. Attributes are its functions; the rest is for tests."""

    def __init__(self, *, devices: int = 1, name: str = "NVIDIA H200") -> None:
        self.devices = devices
        self.name = name
        self.allocated: dict[int, int] = {}
        """Device address to size."""
        self.pinned: dict[int, int] = {}
        self.streams: dict[int, list[Callable[[], object]]] = {}
        self._memory: dict[int, Any] = {}
        self._entered = threading.local()
        self._texts: list[Any] = []
        for function, (arguments, method) in self._functions().items():
            setattr(self, function, CFUNCTYPE(c_int, *arguments)(method))

    def device(self) -> Device:
        """The first device, through the real driver class."""
        driver = Driver(self, self)
        driver.start()
        return Device(driver)

    @property
    def allocated_bytes(self) -> int:
        return sum(self.allocated.values())

    @property
    def ignores_recordings(self) -> bool:
        """Of this thread."""
        return getattr(self._entered, "capture_mode", 0) == 1

    @property
    def idle(self) -> bool:
        """Nothing is allocated, pinned or waiting, and no stream is left."""
        return not (self.allocated or self.pinned or self.streams)

    def allocate(self, size: int) -> int:
        """Device memory, aligned as CUDA aligns it."""
        memory = ctypes.create_string_buffer(size + 256)
        address = -(-ctypes.addressof(memory) // 256) * 256
        self._memory[address] = memory
        self.allocated[address] = size
        return address

    def free(self, address: int) -> None:
        del self.allocated[address], self._memory[address]

    def on_device(self, address: int, size: int) -> bool:
        """Whether these bytes lie within one allocation."""
        return _within(self.allocated, address, size)

    # -- the library ------------------------------------------------------------------------------

    def _functions(self) -> dict[str, tuple[tuple[Any, ...], Callable[..., int]]]:
        text = (c_int, POINTER(c_char_p))
        return {
            "cuInit": ((c_uint,), lambda _: 0 if self.devices else NO_DEVICE),
            "cuGetErrorName": (text, lambda code, to: self._text(code, to, 0)),
            "cuGetErrorString": (text, lambda code, to: self._text(code, to, 1)),
            "cuDeviceGetCount": ((POINTER(c_int),), lambda to: _put(to, self.devices)),
            "cuDeviceGet": ((POINTER(c_int), c_int), _put),
            "cuDeviceGetName": ((c_void_p, c_int, c_int), self._get_name),
            "cuDeviceGetAttribute": (
                (POINTER(c_int), c_int, c_int),
                lambda to, number, _: _put(to, {16: 132, 75: 9, 76: 0}[number]),
            ),
            "cuDeviceGetUuid_v2": ((c_void_p, c_int), self._get_uuid),
            "cuDevicePrimaryCtxRetain": (
                (POINTER(c_void_p), c_int),
                lambda to, _: _put(to, CONTEXT),
            ),
            "cuCtxSetCurrent": ((c_void_p,), self._set_current),
            "cuMemAlloc_v2": ((POINTER(c_uint64), c_size_t), self._mem_alloc),
            "cuMemFree_v2": ((c_uint64,), self._mem_free),
            "cuMemHostAlloc": ((POINTER(c_void_p), c_size_t, c_uint), self._pin),
            "cuMemFreeHost": ((c_void_p,), self._unpin),
            "cuThreadExchangeStreamCaptureMode": ((POINTER(c_int),), self._capture_mode),
            "cuStreamCreate": ((POINTER(c_void_p), c_uint), self._stream_create),
            "cuStreamDestroy_v2": ((c_void_p,), self._stream_destroy),
            "cuStreamSynchronize": ((c_void_p,), self._synchronize),
            "cuMemsetD8Async": ((c_uint64, c_uint8, c_size_t, c_void_p), self._memset),
            "cuMemcpyHtoDAsync_v2": (
                (c_uint64, c_void_p, c_size_t, c_void_p),
                lambda to, source, size, stream: self._copy(to, source, size, stream, to, source),
            ),
            "cuMemcpyDtoHAsync_v2": (
                (c_void_p, c_uint64, c_size_t, c_void_p),
                lambda to, source, size, stream: self._copy(to, source, size, stream, source, to),
            ),
        }

    def _here(self) -> bool:
        return getattr(self._entered, "context", None) == CONTEXT

    def _set_current(self, context: int) -> int:
        self._entered.context = context
        return 0

    def _text(self, code: int, to: Any, index: int) -> int:
        if code not in NAMES:
            return INVALID_VALUE
        to[0] = NAMES[code][index]
        return 0

    def _get_name(self, to: int, size: int, _device: int) -> int:
        text = self.name.encode()[: size - 1] + b"\0"
        ctypes.memmove(to, text, len(text))
        return 0

    def _get_uuid(self, to: int, _device: int) -> int:
        ctypes.memmove(to, bytes(range(16)), 16)
        return 0

    def _mem_alloc(self, to: Any, size: int) -> int:
        if not self._here():
            return INVALID_CONTEXT
        return _put(to, self.allocate(size)) if size else INVALID_VALUE

    def _mem_free(self, address: int) -> int:
        if not self._here():
            return INVALID_CONTEXT
        if address not in self.allocated:
            return INVALID_VALUE
        self.free(address)
        return 0

    def _pin(self, to: Any, size: int, _flags: int) -> int:
        if not self._here():
            return INVALID_CONTEXT
        memory = ctypes.create_string_buffer(size)
        address = ctypes.addressof(memory)
        self._memory[address] = memory
        self.pinned[address] = size
        return _put(to, address)

    def _unpin(self, address: int) -> int:
        if address not in self.pinned:
            return INVALID_VALUE
        del self.pinned[address], self._memory[address]
        return 0

    def _capture_mode(self, mode: Any) -> int:
        if mode[0] not in (0, 1, 2):
            return INVALID_VALUE
        before = getattr(self._entered, "capture_mode", 0)
        self._entered.capture_mode, mode[0] = mode[0], before
        return 0

    def _stream_create(self, to: Any, flags: int) -> int:
        if not self._here() or flags != 1:
            return INVALID_CONTEXT
        stream = 0x5000 + len(self.streams)
        self.streams[stream] = []
        return _put(to, stream)

    def _stream_destroy(self, stream: int) -> int:
        return INVALID_VALUE if self.streams.pop(stream, [None]) else 0

    def _synchronize(self, stream: int) -> int:
        if not self._here() or stream not in self.streams:
            return INVALID_CONTEXT
        asked, self.streams[stream] = self.streams[stream], []
        try:
            for act in asked:
                act()
        except Exception:  # a kernel that fails is seen by the thread that waits
            return ILLEGAL_ADDRESS
        return 0

    def _memset(self, to: int, value: int, size: int, stream: int) -> int:
        if not self._here() or stream not in self.streams:
            return INVALID_CONTEXT
        if not self.on_device(to, size):
            return INVALID_VALUE
        self.streams[stream].append(lambda: ctypes.memset(to, value, size))
        return 0

    def _copy(self, to: int, source: int, size: int, stream: int, device: int, host: int) -> int:
        if not self._here() or stream not in self.streams:
            return INVALID_CONTEXT
        if not self.on_device(device, size) or not _within(self.pinned, host, size):
            return INVALID_VALUE
        self.streams[stream].append(lambda: ctypes.memmove(to, source, size))
        return 0


def _put(to: Any, value: int) -> int:
    to[0] = value
    return 0


def _within(blocks: dict[int, int], address: int, size: int) -> bool:
    return any(begin <= address and address + size <= begin + n for begin, n in blocks.items())
