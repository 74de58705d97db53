"""The names of a classifier's classes, which travel in its ONNX file.

Whoever exports a classifier knows what its scores are of. Said again by hand, the names may stand
in another order, and then every answer has the name of another class.
"""

import json
from collections.abc import Sequence
from typing import Any

from variants.errors import InvalidArtifact

KEY = "modelless.classes"
"""Of the file's metadata: a JSON array of names, in the order of the scores."""
LONGEST = 2**20
"""Characters of that array."""


def write_class_names(model: Any, names: Sequence[str]) -> None:
    """Say in a ``ModelProto`` what its classes are called, unless that takes too much."""
    text = json.dumps(list(names), ensure_ascii=False)
    if len(text) <= LONGEST:
        model.metadata_props.add(key=KEY, value=text)


def class_names(where: str, model: Any) -> tuple[str, ...]:
    """What a ``ModelProto`` says that its classes are called; empty where it says nothing.

    Raises:
        InvalidArtifact: it says no list of different names; the sentence begins with ``where``.
    """
    said = [entry.value for entry in model.metadata_props if entry.key == KEY]
    if not said:
        return ()
    try:
        found = json.loads(said[0]) if len(said) == 1 and len(said[0]) <= LONGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise InvalidArtifact(f"{where}: its metadata {KEY!r} is no list of names")
    if len(set(found)) != len(found):
        raise InvalidArtifact(f"{where}: its metadata {KEY!r} has a name twice")
    return tuple(found)
