"""Whole numbers from 0 on as Protocol Buffers write them: seven bits a byte, the lowest first."""

import mmap


def varint(value: int) -> bytes:
    """A number as it is written."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def read_varint(data: mmap.mmap | bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where the next byte is.

    Raises:
        ValueError: it is longer than a number of 64 bits may be.
        IndexError: the data end within it.
    """
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"a number has more than {shift // 7} bytes")
