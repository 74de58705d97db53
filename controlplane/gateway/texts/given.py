"""The texts of a query, as bodies of either dialect bring them."""

from collections.abc import Sequence
from math import prod
from typing import Any

from controlplane.gateway.query.json_tensors import MAX_ROWS
from controlplane.gateway.query.query_fields import parameters_of
from controlplane.gateway.query.v2.datatypes import elements_of
from variants.checks.json_shape import shown
from variants.errors import InvalidInput
from variants.figures import counted
from variants.texts.inputs import TEXT
from variants.texts.tokenising import Text


def listed_texts(inputs: Any) -> list[Text]:
    """The inputs of a body of ``/v1/query``: texts, or pairs of them.

    Raises:
        InvalidInput: they are something else.
    """
    if isinstance(inputs, str):
        raise InvalidInput("'inputs' is a list of texts; put a single one in a list of its own")
    found = [(one[0], one[1]) if isinstance(one, list) and len(one) == 2 else one for one in inputs]
    return _checked(found)


def _checked(found: list[Any]) -> list[Text]:
    """
    Raises:
        InvalidInput: one is no text or pair of texts, or there are too many or none.
    """
    if not 0 < len(found) <= MAX_ROWS:
        raise InvalidInput(f"there are {len(found):,} texts; a query has 1 to {MAX_ROWS:,}")
    for number, one in enumerate(found):
        parts = one if isinstance(one, tuple) else (one,)
        if not all(type(part) is str for part in parts):
            raise InvalidInput(
                f"'inputs' must be texts, or pairs of two, and number {number} is {shown(one)}"
            )
    if len({type(one) for one in found}) > 1:
        raise InvalidInput("'inputs' must be all texts, or all pairs of two")
    return found


def texts_of_entry(inputs: Sequence[Any], raw: memoryview) -> list[Text]:
    """The texts of the one input of a request of the Open Inference Protocol.

    Raises:
        InvalidInput: it breaks the protocol.
    """
    if len(inputs) != 1:
        raise InvalidInput(f"texts come alone, in one input that is called {TEXT!r}")
    entry = inputs[0]
    if entry.get("name") != TEXT:
        raise InvalidInput(f"the input of texts is called {TEXT!r}, not {shown(entry.get('name'))}")
    shape = entry.get("shape")
    sizes = shape if isinstance(shape, list) else []
    whole = all(type(size) is int and size > 0 for size in sizes)
    if not whole or not (len(sizes) == 1 or (len(sizes) == 2 and sizes[1] in (1, 2))):
        raise InvalidInput(
            f"input {TEXT!r} must have shape [rows], or [rows, 2] for pairs, not {shown(shape)}"
        )
    if prod(sizes) > 2 * MAX_ROWS:
        raise InvalidInput(f"there are {sizes[0]:,} texts; a query has 1 to {MAX_ROWS:,}")
    own = parameters_of(entry, f"parameters of input {TEXT!r}")
    if "binary_data_size" in own:
        flat = _of_bytes(raw, own["binary_data_size"])
    elif raw:
        raise InvalidInput(f"{len(raw)} bytes follow the last input")
    else:
        flat = _flat(entry.get("data"))
    if len(flat) != prod(sizes):
        raise InvalidInput(
            f"input {TEXT!r} has {counted(len(flat), 'text')}, its shape {sizes} needs"
            f" {prod(sizes)}"
        )
    if sizes[-1] == 2 and len(sizes) == 2:
        return _checked(list(zip(flat[::2], flat[1::2], strict=True)))
    return _checked(flat)


def _flat(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise InvalidInput(f"input {TEXT!r} needs 'data', a list of texts")
    return [one for each in data for one in (each if isinstance(each, list) else [each])]


def _of_bytes(raw: memoryview, size: Any) -> list[Any]:
    """BYTES as they are sent: each behind its length, four bytes, little-endian.

    Raises:
        InvalidInput: they are none.
    """
    if size != len(raw):
        raise InvalidInput(
            f"binary_data_size of input {TEXT!r} is {shown(size)}, and {len(raw)} bytes are there"
        )
    try:
        return [one.decode() for one in elements_of(raw)]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"a text of input {TEXT!r} is not UTF-8") from error
