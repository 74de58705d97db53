"""Arrays of untrusted ``.npz`` files.

Sizes are checked from the declarations before anything is read, also those that arrays have in the
types that they are to become, and pickle never is.
"""

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from variants.checks.onnx_file import check_file
from variants.checks.zip_layout import LARGEST_ENTRY, directory_of
from variants.errors import InvalidArtifact
from variants.figures import apart

MAX_MIB = 512.0

MAX_MEMBERS = 64

TABLES = frozenset({".csv", ".tsv", ".parquet", ".xlsx", ".json", ".jsonl", ".feather"})
"""Endings of files that people have their rows in, and that are not read here."""


def read_arrays(
    path: Path, max_mib: float = MAX_MIB, becomes: Mapping[str, np.dtype[Any]] | None = None
) -> dict[str, NDArray[Any]]:
    """All arrays of the file by name, of any shape, none of them with pickled objects.

    Args:
        becomes: the types that arrays are cast to, by name. What is small as bytes is eight times
            as large in a wide type.

    Raises:
        InvalidArtifact: one sentence with the first thing that is wrong; it names the file.
    """
    check_file(path, limit_mib=max_mib)
    damaged = f"{path.name} is not an .npz file, or is damaged; numpy.savez writes one"
    if path.suffix in TABLES:
        damaged = (
            f"{path.name} is not an .npz file; numpy.savez writes one of a table's columns, as in "
            "numpy.savez('rows.npz', features=table[columns], labels=table['label'])"
        )
    try:
        count, directory_bytes = directory_of(path)
    except InvalidArtifact:
        raise InvalidArtifact(damaged) from None
    # zipfile would read all entries that there are, whatever their number.
    if count > MAX_MEMBERS or directory_bytes > MAX_MEMBERS * LARGEST_ENTRY:
        raise InvalidArtifact(f"{path.name} has more than {MAX_MEMBERS} arrays")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != count:
                raise InvalidArtifact(damaged)
            names = [member.filename.removesuffix(".npy") for member in members]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise InvalidArtifact(f"{path.name} has the array {twice!r} twice")
            declared = sum(member.file_size for member in members)
            if declared > max_mib * 2**20:
                size, limit = apart(declared / 2**20, max_mib)
                raise InvalidArtifact(
                    f"{path.name} unpacks to {size} MiB, more than the {limit} allowed"
                )
            named = list(zip(names, members, strict=True))
            wanted = becomes or {}
            cast = sum(_cast_bytes(path, archive, one, wanted.get(name)) for name, one in named)
            if cast > max_mib * 2**20:
                size, limit = apart(cast / 2**20, max_mib)
                raise InvalidArtifact(
                    f"{path.name} takes {size} MiB in the task's types, more than the {limit}"
                    " allowed"
                )
            return {name: _read_array(path, archive, member) for name, member in named}
    except InvalidArtifact:
        raise
    except Exception as error:  # each layer of the format has its own: see _read_array
        raise InvalidArtifact(damaged) from error


def _read_array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with _reading(path, member), archive.open(member) as stream:
        array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
        return array


def _cast_bytes(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, wanted: np.dtype[Any] | None
) -> int:
    """How many bytes an array takes once it is cast, by what it declares.

    Raises:
        InvalidArtifact: it holds pickled objects, or declares what it has not.
    """
    with _reading(path, member) as where, archive.open(member) as stream:
        shape, dtype = _read_header(stream)
        if dtype.hasobject:
            raise InvalidArtifact(f"{where} holds pickled objects, which are never loaded")
        # numpy would reserve what the header declares, however little follows.
        if _count(shape) * dtype.itemsize > member.file_size:
            raise InvalidArtifact(f"{where} declares more data than it has")
        return _count(shape) * max(dtype.itemsize, wanted.itemsize if wanted is not None else 0)


@contextmanager
def _reading(path: Path, member: zipfile.ZipInfo) -> Iterator[str]:
    """Says of whatever is raised within that the array cannot be read; gives what it is called."""
    where = f"{path.name}: array {member.filename.removesuffix('.npy')!r}"
    try:
        yield where
    except InvalidArtifact:
        raise
    except Exception as error:
        # What damage does depends on where it is: zlib.error, struct.error, tokenize.TokenError,
        # UnicodeDecodeError and BadZipFile have no base in common.
        raise InvalidArtifact(f"{where} cannot be read") from error


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"format {version}")
    shape, _, dtype = read(stream)
    return shape, dtype


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        if size < 0:
            raise ValueError("a negative size")
        count *= size
    return count
