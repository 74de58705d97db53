"""Where the versions of a model lie: one file, or a folder with one numbered folder for each.

::

    cnn.onnx                a model's next version
    cnn/1/model.onnx        version 1; the file may have any name that ends in .onnx or .pt2
    cnn/3/model.pt2         version 3; numbers may be left out
    cnn/3/notes.txt         other files do not count
    cnn/best/model.onnx     neither do folders whose names are no numbers

That is how TensorFlow Serving lays versions out; it too takes the numbers as they are and asks for
none in between. A version is one file: an ONNX model, or an archive that ``modelless.export`` made
of a PyTorch module.
"""

import re
import stat
from dataclasses import dataclass
from pathlib import Path

from variants.errors import InvalidArtifact, InvalidInput
from variants.foreign_files import foreign_folder
from variants.types import NAME, ModelName

MAX_VERSIONS = 64
SUFFIXES = (".onnx", ".pt2")
"""Ends of the names of files that can be a version."""
_NO_FILE = f"has no {' or '.join(SUFFIXES)} file"

_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)*")
"""Names that look like a version, 01, 1.0 and -1 included, which are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One version's source file."""

    model: ModelName
    version: int | None
    """``None``: whatever number is next."""
    path: Path


def find_model_files(
    path: Path, model: str | None = None, *, only: str | None = None
) -> tuple[ModelFile, ...]:
    """The versions at ``path``, ascending. The name is ``model``, else the file's or folder's in
    small letters.

    With ``only``, the numbered folder of that name, whatever lies beside it. Links are refused:
    what is registered is what lies here.

    Raises:
        InvalidArtifact: there is nothing, a link, or a folder that is not laid out so.
        InvalidInput: the name is none; one has to be given.
    """
    kind = _kind(path)
    if stat.S_ISREG(kind):
        return (ModelFile(model=_name(model, path.stem), version=None, path=path),)
    if not stat.S_ISDIR(kind):
        raise InvalidArtifact(f"{path.name or path} is neither a plain file nor a folder")
    name, shown = model_name(path, model), path.name or path
    numbered = numbered_folders(path) if only is None else [path / only]
    if not numbered:
        names = [child.name for child in _children(path)]
        what = foreign_folder(str(path), names) or "has no folder named after a version, such as 1"
        raise InvalidArtifact(f"{shown} {what}")
    if len(numbered) > MAX_VERSIONS:
        raise InvalidArtifact(f"{shown} has more than {MAX_VERSIONS} versions")
    wrong = [child.name for child in numbered if not _VERSION.fullmatch(child.name)]
    if wrong:
        raise InvalidArtifact(
            f"{shown}/{wrong[0]} is no version; versions count from 1, without leading zeros"
        )
    return tuple(
        ModelFile(model=name, version=int(child.name), path=_only_file(path, child))
        for child in sorted(numbered, key=lambda child: int(child.name))
    )


def model_name(path: Path, model: str | None = None) -> ModelName:
    """What the model whose versions lie in the folder ``path`` is called: ``model``, if given.

    Raises:
        InvalidInput: the name is none; one has to be given.
    """
    return _name(model, path.resolve().name)


def numbered_folders(path: Path) -> list[Path]:
    """What is named after a version in a folder, or looks as if it were.

    Raises:
        InvalidArtifact: the folder cannot be read.
    """
    return [child for child in _children(path) if _NUMBER.fullmatch(child.name)]


def _only_file(folder: Path, version: Path) -> Path:
    where = f"{folder.name}/{version.name}"
    if not stat.S_ISDIR(_kind(version)):
        raise InvalidArtifact(f"{where} is not a folder")
    children = _children(version)
    files = [child for child in children if child.suffix in SUFFIXES]
    if not files:
        what = foreign_folder(str(version), [child.name for child in children])
        raise InvalidArtifact(f"{where} {what or _NO_FILE}")
    if len(files) > 1:
        raise InvalidArtifact(f"{where} has {len(files)} model files; a version is one")
    if not stat.S_ISREG(_kind(files[0])):
        raise InvalidArtifact(f"{where}/{files[0].name} is not a plain file")
    return files[0]


def _kind(path: Path) -> int:
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArtifact(f"{path.name or path} cannot be read: {reason}") from error
    if stat.S_ISLNK(mode):
        raise InvalidArtifact(f"{path.name} is a symbolic link; give what it points to")
    return mode


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InvalidArtifact(f"{folder.name} cannot be read: {error.strerror}") from error


def _name(given: str | None, found: str) -> ModelName:
    shown = given if given is not None else found
    name = shown if given is not None else found.lower()
    if not NAME.fullmatch(name):
        hint = "" if given is not None else "; give another one with --model"
        raise InvalidInput(
            f"{shown[:40]!r} cannot be a model's name: lower-case letters, digits, dots, dashes and"
            f" underscores can{hint}"
        )
    return ModelName(name)
