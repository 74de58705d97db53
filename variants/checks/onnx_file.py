"""Reading an ONNX file, before anything in it is checked."""

import os
import stat
from pathlib import Path
from typing import Any

from variants.errors import InvalidArtifact
from variants.figures import apart


def check_file(path: Path, *, limit_mib: float) -> int:
    """Size in bytes of a plain, readable file that is not a link, not empty and not too large.

    Raises:
        InvalidArtifact: it is something else.
    """
    try:
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArtifact(f"{path.name} cannot be read: {reason}") from error
    if stat.S_ISLNK(found.st_mode):
        raise InvalidArtifact(f"{path.name} is a symbolic link; give the file itself")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidArtifact(f"{path.name} is not a plain file")
    if found.st_size == 0:
        raise InvalidArtifact(f"{path.name} is empty")
    if found.st_size > limit_mib * 2**20:
        size, limit = apart(found.st_size / 2**20, limit_mib)
        raise InvalidArtifact(f"{path.name} has {size} MiB, more than the {limit} allowed")
    return found.st_size


def parse_model(where: str, data: bytes) -> Any:
    """The protobuf message of a model, of which nothing is checked yet.

    Raises:
        InvalidArtifact: the bytes are none; sentences begin with ``where``.
    """
    import onnx
    from google.protobuf.message import DecodeError

    for beginning, what in _NOT_READ:
        if data.startswith(beginning):
            raise InvalidArtifact(f"{where} {what}")
    try:
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError) as error:
        raise InvalidArtifact(f"{where} is not an ONNX model, or only a part of one") from error
    return model


_EXPORT_IT = (
    "which is never read; load the model where it was trained and write it with modelless.export"
)

_NOT_READ = (
    (b"PK\x03\x04", f"is a zip archive, such as torch.save writes, {_EXPORT_IT}"),
    (b"\x80", f"is a pickle, {_EXPORT_IT}"),
    (b"version https://git-lfs", "is what Git LFS keeps in its place; `git lfs pull` fetches it"),
    (b"<", "is a page of the web, not the model: what was it downloaded from"),
)
"""How files begin that are often handed in for a model, and what they are. No ONNX model begins so:
its first byte is the tag of a field of ``ModelProto``, a number of at most 25 and a wire type."""
