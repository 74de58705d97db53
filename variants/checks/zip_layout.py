"""Reading an untrusted zip file, which has to lay its members out in the one plain way.

Readers of zip files differ in what they make of odd ones: which directory counts, whose size, what
a name twice means. A file that leaves nothing to differ about is the same to all of them::

    local header, data [, descriptor]     for each member, from byte 0, without gap or overlap
    directory                             the same members in the same order, saying the same
    end of directory                      the file's last bytes

Members are stored as they are, so nothing unpacks to more than it takes.

Format: PKWARE's .ZIP File Format Specification (APPNOTE 6.3.10), section 4.3.
"""

import re
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from variants.errors import InvalidArtifact

PIECE_BYTES = 1 << 22
"""A multiple of every element's size."""

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_DESCRIPTOR = struct.Struct("<IIII")
_DESCRIPTOR_64 = struct.Struct("<IIQQ")
_ENTRY = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_END_64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR_64 = struct.Struct("<IIQI")
_LOCAL_MARK, _DESCRIPTOR_MARK, _ENTRY_MARK = 0x04034B50, 0x08074B50, 0x02014B50
_END_MARK, _END_64_MARK, _LOCATOR_64_MARK = 0x06054B50, 0x06064B50, 0x07064B50
_IN_ZIP64 = 0xFFFF_FFFF
"""Stands where a 32-bit field is too small for its number."""
_ZIP64_FIELD = 1
_DESCRIBED, _UTF8 = 0x0008, 0x0800
_LONGEST_NAME = 512
LARGEST_ENTRY = _ENTRY.size + _LONGEST_NAME + 64
"""The largest entry that a directory may have, in bytes."""
_NAME = re.compile(r"[A-Za-z0-9_.@+=-]+(/[A-Za-z0-9_.@+=-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One stored file."""

    name: str
    start: int
    """Where its data begin, in bytes from the beginning of the archive."""
    size_bytes: int
    crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """What the directory says of a member."""

    name: bytes
    flags: int
    crc32: int
    size_bytes: int
    header: int


class _Odd(Exception):
    """Raised for an unusual layout; its text is the rest of a sentence."""


def read_layout(path: Path, *, max_members: int) -> dict[str, Member]:
    """The members of a plain zip file by their names, in their order.

    Raises:
        InvalidArtifact: it is none, or it is laid out in any other way; the sentence names the
            file and the first thing that is odd.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            count, directory, directory_bytes = _end_of_directory(file, size)
            if count > max_members:
                raise _Odd(f"has {count} members, more than the {max_members} allowed")
            if directory_bytes > max_members * LARGEST_ENTRY:
                raise _Odd(f"has a zip directory of {directory_bytes} bytes")
            entries = _entries(_bytes_at(file, directory, directory_bytes), count)
            return _members(file, entries, directory)
    except _Odd as odd:
        raise InvalidArtifact(f"{path.name} {odd}") from None
    except OSError as error:
        raise InvalidArtifact(f"{path.name} cannot be read: {error.strerror}") from error


def directory_of(path: Path) -> tuple[int, int]:
    """How many members a zip file says it has, and the bytes of its directory; from its end.

    For other readers' sake: they read as many entries as there are before one can ask.

    Raises:
        InvalidArtifact: it does not end as a zip file.
    """
    try:
        with path.open("rb") as file:
            count, _, length = _end_of_directory(file, file.seek(0, 2))
    except _Odd as odd:
        raise InvalidArtifact(f"{path.name} {odd}") from None
    except OSError as error:
        raise InvalidArtifact(f"{path.name} cannot be read: {error.strerror}") from error
    return count, length


def pieces(path: Path, member: Member) -> Iterator[bytes]:
    """A member's bytes in pieces of ``PIECE_BYTES``, the last one shorter.

    Raises:
        InvalidArtifact: after the last piece, when the checksum is another.
    """
    found = 0
    with path.open("rb") as file:
        file.seek(member.start)
        left = member.size_bytes
        while left and (piece := file.read(min(left, PIECE_BYTES))):
            found = zlib.crc32(piece, found)
            left -= len(piece)
            yield piece
    if left or found != member.crc32:
        raise InvalidArtifact(f"{path.name} has a damaged member: {member.name!r}")


def _bytes_at(file: BinaryIO, start: int, count: int) -> bytes:
    file.seek(start)
    data = file.read(count)
    if len(data) != count:
        raise _Odd("is not a zip archive, or only a part of one")
    return data


def _end_of_directory(file: BinaryIO, size: int) -> tuple[int, int, int]:
    """Number of members, where the directory starts, and how long it is."""
    not_one = "is not a zip archive, or only a part of one"
    end = size - _END.size
    if end < 0:
        raise _Odd(not_one)
    mark, disk, first_disk, here, count, length, start, comment = _END.unpack(
        _bytes_at(file, end, _END.size)
    )
    if mark != _END_MARK or comment:
        raise _Odd(not_one)
    said = (disk, first_disk, here, count, length, start)
    locator = end - _LOCATOR_64.size
    if locator >= _END_64.size:
        mark, in_disk, where, disks = _LOCATOR_64.unpack(_bytes_at(file, locator, _LOCATOR_64.size))
        if mark == _LOCATOR_64_MARK:
            if in_disk or disks != 1 or where != locator - _END_64.size:
                raise _Odd("has a damaged zip directory")
            end = where
            said = _end_64(_bytes_at(file, end, _END_64.size), said)
    disk, first_disk, here, count, length, start = said
    if disk or first_disk or here != count or start + length != end:
        raise _Odd("has a damaged zip directory")
    return count, start, length


def _end_64(data: bytes, said: tuple[int, ...]) -> tuple[int, int, int, int, int, int]:
    """The 64-bit numbers, which must be those that the 32-bit end says where it has room."""
    mark, length_of_rest, _, _, disk, first_disk, here, count, length, start = _END_64.unpack(data)
    wide = (disk, first_disk, here, count, length, start)
    limits = (0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, _IN_ZIP64, _IN_ZIP64)
    agree = all(
        narrow in (number, limit) for narrow, number, limit in zip(said, wide, limits, strict=True)
    )
    if mark != _END_64_MARK or length_of_rest != _END_64.size - 12 or not agree:
        raise _Odd("has two zip directories that contradict each other")
    return wide


def _entries(data: bytes, count: int) -> list[_Entry]:
    entries: list[_Entry] = []
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(data):
            raise _Odd("has a damaged zip directory")
        (
            mark, _, _, flags, method, _, _, crc32, packed, size,
            name_bytes, extra_bytes, comment, disk, _, attributes, header,
        ) = _ENTRY.unpack_from(data, at)  # fmt: skip
        at += _ENTRY.size
        name = data[at : at + name_bytes]
        extra = data[at + name_bytes : at + name_bytes + extra_bytes]
        at += name_bytes + extra_bytes
        if mark != _ENTRY_MARK or comment or disk or at > len(data):
            raise _Odd("has a damaged zip directory")
        shown = _checked_name(name)
        if flags & ~(_DESCRIBED | _UTF8):
            raise _Odd(
                f"has the member {shown!r}, which is encrypted, or packed in a way of its own"
            )
        if method:
            raise _Odd(f"has the member {shown!r} compressed; members are stored as they are")
        if stat.S_IFMT(attributes >> 16) not in (0, stat.S_IFREG):
            raise _Odd(f"has the member {shown!r}, which is a link or a folder, not a file")
        size, packed, header = _widened(shown, extra, size, packed, header)
        if size != packed:
            raise _Odd(
                f"has the member {shown!r}, which declares two sizes: {size} and {packed} bytes"
            )
        entries.append(_Entry(name=name, flags=flags, crc32=crc32, size_bytes=size, header=header))
    if at != len(data):
        raise _Odd("has a damaged zip directory")
    return entries


def _checked_name(name: bytes) -> str:
    """A relative path without detours, in plain ASCII."""
    text = name.decode("ascii", "backslashreplace")
    if len(name) > _LONGEST_NAME:
        raise _Odd(f"has a member with a name of {len(name)} bytes")
    if text.startswith("/") or "\\" in text or ".." in text.split("/"):
        raise _Odd(f"has a member that points outside: {text!r}")
    if text.endswith("/"):
        raise _Odd(f"has the member {text!r}, which is a link or a folder, not a file")
    if not _NAME.fullmatch(text) or "." in text.split("/"):
        raise _Odd(f"has a member with an odd name: {text!r}")
    return text


def _widened(shown: str, extra: bytes, *narrow: int) -> list[int]:
    """Size, packed size and header, read from the zip64 field where they say so."""
    wide: bytes | None = None
    at = 0
    while at < len(extra):
        kind, length = struct.unpack_from("<HH", extra.ljust(at + 4, b"\0"), at)
        at += 4
        if at + length > len(extra):
            raise _Odd("has a damaged zip directory")
        if kind == _ZIP64_FIELD:
            if wide is not None:
                raise _Odd(f"has the member {shown!r}, which declares its zip64 sizes twice")
            wide = extra[at : at + length]
        at += length
    needed = sum(number == _IN_ZIP64 for number in narrow)
    if len(wide or b"") != 8 * needed:
        raise _Odd(f"has the member {shown!r} with zip64 sizes that contradict its others")
    numbers = iter(struct.unpack(f"<{needed}Q", wide or b""))
    return [next(numbers) if number == _IN_ZIP64 else number for number in narrow]


def _members(file: BinaryIO, entries: list[_Entry], directory: int) -> dict[str, Member]:
    """Walk through the file as the directory says, and find in each place what it says."""
    members: dict[str, Member] = {}
    at = 0
    for position, entry in enumerate(entries):
        name = entry.name.decode("ascii")
        if name in members:
            raise _Odd(f"has the member {name!r} twice")
        if entry.header != at:
            raise _Odd(f"has the member {name!r}, which overlaps another, or leaves a gap")
        start = _after_local_header(file, entry, name)
        following = entries[position + 1].header if position + 1 < len(entries) else directory
        end = start + entry.size_bytes
        if end > following:
            raise _Odd(f"has the member {name!r}, which overlaps another, or leaves a gap")
        at = end + _descriptor_bytes(file, entry, name, end, following - end)
        members[name] = Member(
            name=name, start=start, size_bytes=entry.size_bytes, crc32=entry.crc32
        )
    if at != directory:
        raise _Odd("has bytes between its members and its zip directory")
    return members


def _after_local_header(file: BinaryIO, entry: _Entry, name: str) -> int:
    mark, _, flags, method, _, _, crc32, packed, size, name_bytes, extra_bytes = _LOCAL.unpack(
        _bytes_at(file, entry.header, _LOCAL.size)
    )
    local_name = _bytes_at(file, entry.header + _LOCAL.size, name_bytes)
    extra = _bytes_at(file, entry.header + _LOCAL.size + name_bytes, extra_bytes)
    if _IN_ZIP64 in (packed, size):
        size, packed, _ = _widened(name, extra, size, packed, 0)
    said = (mark, flags, method, local_name)
    same = said == (_LOCAL_MARK, entry.flags, 0, entry.name)
    numbers = (crc32, packed, size)
    # Written before the data was: the numbers follow it, in the descriptor.
    later = bool(flags & _DESCRIBED) and not any(numbers)
    if not same or not (later or numbers == (entry.crc32, entry.size_bytes, entry.size_bytes)):
        raise _Odd(f"has the member {name!r}, which the zip directory contradicts")
    return entry.header + _LOCAL.size + len(local_name) + len(extra)


def _descriptor_bytes(file: BinaryIO, entry: _Entry, name: str, at: int, room: int) -> int:
    """Length of what follows the data, which says once more what the directory says."""
    if not entry.flags & _DESCRIBED:
        return 0
    layout = next((d for d in (_DESCRIPTOR, _DESCRIPTOR_64) if d.size == room), None)
    expected = (_DESCRIPTOR_MARK, entry.crc32, entry.size_bytes, entry.size_bytes)
    if layout is None or layout.unpack(_bytes_at(file, at, room)) != expected:
        raise _Odd(f"has the member {name!r}, which the zip directory contradicts")
    return room
