"""The names of a classifier's classes, which travel in its ONNX file.

Whoever exports a classifier knows what its scores are of. Said again by hand, the names may stand
in another order, and then every answer has the name of another class. ``modelless.export`` writes
them into the metadata; the files of skl2onnx have them where they turn a place into a name.
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
        return _of_converter(model)
    try:
        found = json.loads(said[0]) if len(said) == 1 and len(said[0]) <= LONGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise InvalidArtifact(f"{where}: its metadata {KEY!r} is no list of names")
    if len(set(found)) != len(found):
        raise InvalidArtifact(f"{where}: its metadata {KEY!r} has a name twice")
    return tuple(found)


def _of_converter(model: Any) -> tuple[str, ...]:
    """By what skl2onnx makes the name of the class that a row belongs to, which is the first output
    then; empty where that cannot be told.

    The scores of ``ai.onnx.ml`` have the order of ``classlabels_strings``, but for the decisions of
    support vector machines of two classes, which stand the other way round; other classifiers take
    the name at the place of the highest score from a constant.
    """
    from onnx import TensorProto

    graph = model.graph
    if len(graph.output) != 2:
        return ()
    label, scores = (value.type.tensor_type for value in graph.output)
    if label.elem_type != TensorProto.STRING or scores.elem_type != TensorProto.FLOAT:
        return ()
    lists = {
        tuple(attribute.strings)
        for node in graph.node
        for attribute in node.attribute
        if attribute.name == "classlabels_strings"
    }
    held = (one for one in graph.initializer if one.data_type == TensorProto.STRING)
    lists |= {tuple(one.string_data) for one in held}
    if len(lists) != 1:
        return ()
    (found,) = lists
    if len(found) == 2 and any(node.op_type == "SVMClassifier" for node in graph.node):
        return ()
    axes = scores.shape.dim
    fits = len(axes) == 2 and axes[1].dim_value == len(found) == len(set(found))
    if not fits or sum(map(len, found)) > LONGEST:
        return ()
    try:
        names = tuple(each.decode() for each in found)
    except UnicodeDecodeError:
        return ()
    return names if all(names) else ()
