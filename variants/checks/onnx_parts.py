"""ONNX models whose weights lie in files beside them, made into one file.

``torch.onnx.export`` writes weights into ``model.onnx.data`` unless it is told not to, and so do
exporters of large models. A model is one file here, because its content is its identity. Only plain
files in the model's own folder are read. What is within them is looked at afterwards, by the usual
check of the joined model.

Parsing happens in native code, so callers that take files from outside do it in a child process.
"""

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from variants.checks.onnx_file import check_file, parse_model
from variants.checks.onnx_walk import tensors
from variants.errors import InvalidArtifact
from variants.figures import apart

LARGEST_MIB = 2047.0
"""Of one protobuf message."""


def has_parts(path: Path) -> bool:
    """Whether it looks as if some weights were in a file beside: cheap, and without parsing."""
    with (
        suppress(OSError, ValueError),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        if data.find(b"location") < 0:
            return False
        with os.scandir(path.parent) as entries:
            files = [one for one in entries if one.is_file(follow_symlinks=False)]
            beside = [os.fsencode(one.name) for one in files if one.name != path.name]
        return any(data.find(name) >= 0 for name in beside)
    return False


def join_parts(source: Path, target: Path, *, limit_mib: float) -> None:
    """Write a model with its weights inside; the same files always give the same bytes.

    Raises:
        InvalidArtifact: it cannot be read, names a file that is not there, or all is too large.
    """
    from onnx import TensorProto

    where, limit_mib = source.name, min(limit_mib, LARGEST_MIB)
    check_file(source, limit_mib=limit_mib)
    model = parse_model(where, source.read_bytes())
    size = model.ByteSize()
    for tensor in tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        part, offset, length = _place(where, source.parent, tensor)
        size += length
        if size > limit_mib * 2**20:
            joined, limit = apart(size / 2**20, limit_mib)
            raise InvalidArtifact(
                f"{where} has {joined} MiB with the weights beside it, more than the {limit}"
                " allowed"
            )
        with part.open("rb") as file:
            file.seek(offset)
            held = file.read(length)
        if len(held) != length:
            raise InvalidArtifact(f"{where}: {part.name} ends before tensor {tensor.name!r} does")
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT
        tensor.raw_data = held
    target.write_bytes(model.SerializeToString(deterministic=True))


def _place(where: str, folder: Path, tensor: Any) -> tuple[Path, int, int]:
    """The file that holds a tensor, where it begins there, and how many bytes it has."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    name = said.get("location", "").removeprefix("./")
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InvalidArtifact(
            f"{where} keeps tensor {tensor.name!r} in {said.get('location', '')[:128]!r}, which is"
            " no file beside it"
        )
    try:
        part = folder / name
        whole = part.stat().st_size if part.is_file() else None
        offset = int(said.get("offset", "0"))
        length = int(said["length"]) if "length" in said else (whole or 0) - offset
    except (OSError, ValueError) as error:
        raise InvalidArtifact(
            f"{where}: tensor {tensor.name!r} has no place in {name!r}"
        ) from error
    if part.is_symlink():
        raise InvalidArtifact(
            f"{where} keeps tensor {tensor.name!r} in {name!r}, which is a symbolic link; put the"
            " file itself there"
        )
    if whole is None:
        raise InvalidArtifact(
            f"{where} keeps tensor {tensor.name!r} in {name!r}, which is not beside it"
        )
    if offset < 0 or length < 0:
        raise InvalidArtifact(f"{where}: tensor {tensor.name!r} has no place in {name!r}")
    return part, offset, length
