"""Which inputs of an ONNX model a tokenizer fills, whether their rows have one length or several.

Parsing happens in native code, so callers that take files from outside do it in a child process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.evaluation.embedding_table import rows_of_table
from variants.checks.onnx_file import parse_model
from variants.errors import InvalidArtifact
from variants.texts.inputs import WHOLE, roles_of

TWO_AXES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledInputs:
    """The inputs that a text fills."""

    ids: str
    mask: str | None
    types: str | None
    dtypes: dict[str, str]
    length: int | None
    """Tokens of all rows; None where that is left open."""
    table: int | None = None
    """How many numbers of tokens there are embeddings for; None where the graph does not show
    it."""


def inputs_for_texts(path: Path, given: Mapping[str, str], *, where: str) -> FilledInputs:
    """The inputs of a model that takes numbers of tokens.

    Args:
        given: inputs that somebody has named, by what they take.
        where: what the model is called in sentences.

    Raises:
        InvalidArtifact: it cannot be read, or takes something else.
        InvalidInput: what an input takes is not known.
    """
    from onnx import helper

    model = parse_model(where, path.read_bytes())
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in held]
    ids, mask, types = roles_of([value.name for value in inputs], given, where)
    dtypes, lengths = {}, set[int | None]()
    for value in inputs:
        tensor = value.type.tensor_type
        dtypes[value.name] = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        lengths.add(_length(where, value.name, dtypes[value.name], tensor.shape.dim))
    if len(lengths) > 1:
        raise InvalidArtifact(f"{where}: its inputs {', '.join(dtypes)} have different lengths")
    return FilledInputs(
        ids=ids,
        mask=mask,
        types=types,
        dtypes=dtypes,
        length=lengths.pop(),
        table=rows_of_table(model, ids),
    )


def _length(where: str, name: str, dtype: str, dims: Any) -> int | None:
    if dtype not in WHOLE or len(dims) != TWO_AXES:
        raise InvalidArtifact(
            f"{where}: input {name!r} is {dtype} of {len(dims)} axes, and numbers of tokens are"
            f" {' or '.join(WHOLE)} of two: rows and tokens"
        )
    return int(dims[1].dim_value) or None
