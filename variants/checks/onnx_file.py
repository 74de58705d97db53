"""Reading an ONNX file, before anything in it is checked."""

import os
import stat
from pathlib import Path
from typing import Any

from variants.errors import InvalidArtifact
from variants.figures import apart
from variants.foreign_files import by_name, foreign_file


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

    if what := foreign_file(data):
        raise InvalidArtifact(f"{where} {what}")
    try:
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError) as error:
        what = by_name(where) or "is not an ONNX model, or only a part of one"
        raise InvalidArtifact(f"{where} {what}") from error
    # A file of TensorFlow is a message that can be read as one of ONNX, of which nothing is there.
    if not model.HasField("graph") and (what := by_name(where)):
        raise InvalidArtifact(f"{where} {what}")
    return model
