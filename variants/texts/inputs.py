"""Texts as rows of a task's inputs: which inputs a tokenizer fills, and what it is filled from.

``variants.texts.tokenising`` has the tokenizer itself, which is imported only where texts are read.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence

from variants.errors import InvalidInput
from variants.figures import counted
from variants.types import Digest, OpenAxis, Task, TensorSpec, TextInput

MOST_BYTES = 64 * 2**20
"""Of a ``tokenizer.json``. One of 250,000 pieces has some 17 MiB."""
TEXT = "text"
"""What the Open Inference Protocol calls the input that takes texts, beside those of the model."""
WHOLE = ("int64", "int32")
"""Types of inputs that numbers of tokens go to."""
_ROLES: Mapping[str, tuple[str, ...]] = {
    "ids": ("input_ids", "ids", "token_ids", "tokens", "input_ids:0"),
    "mask": ("attention_mask", "mask", "input_mask", "attention_mask:0"),
    "types": ("token_type_ids", "segment_ids", "types", "token_type_ids:0"),
}
"""What exporters call the inputs that a tokenizer fills."""
_ORDER = tuple(_ROLES)


def digest_of_text(tokenizer: bytes) -> Digest:
    """The name of a ``tokenizer.json``: SHA-256 of its bytes."""
    return Digest(hashlib.sha256(tokenizer).hexdigest())


def packed(tokenizer: bytes) -> bytes:
    """A ``tokenizer.json`` as it is kept and sent."""
    return zlib.compress(tokenizer, 6)


def unpacked(data: bytes) -> bytes:
    """What ``packed`` was given.

    Raises:
        InvalidInput: it is nothing of the kind, or too large.
    """
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise InvalidInput("a tokenizer is damaged") from error
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise InvalidInput("a tokenizer is damaged, or too large")
    return found


def roles_of(
    inputs: Sequence[str], given: Mapping[str, str], where: str
) -> tuple[str, str | None, str | None]:
    """Which inputs take the numbers of tokens, the mask and the types of tokens.

    Args:
        given: the inputs that somebody has named, by ``ids``, ``mask`` and ``types``.
        where: what the model is called in sentences.

    Raises:
        InvalidInput: an input is left over, or none takes numbers of tokens.
    """
    if unknown := sorted(given.keys() - _ROLES.keys()):
        raise InvalidInput(
            f"a tokenizer gives {', '.join(_ORDER)}, and nothing that is called {unknown[0][:40]!r}"
        )
    found: dict[str, str] = {}
    for role, name in given.items():
        if name not in inputs:
            raise InvalidInput(
                f"{where} has no input {name[:40]!r} that could take the {role} of a text; its"
                f" inputs are: {', '.join(inputs)}"
            )
        found[role] = name
    left = [name for name in inputs if name not in found.values()]
    for role, usual in _ROLES.items():
        same = [name for name in left if name.lower() in usual]
        if role not in found and same:
            found[role] = same[0]
            left.remove(same[0])
    if "ids" not in found and len(left) == 1:
        found["ids"] = left.pop()
    if left or "ids" not in found:
        odd = f"input {left[0]!r} of {where}" if left else f"no input of {where}"
        raise InvalidInput(
            f"{odd} is told by its name to be the numbers, the mask or the types of tokens: say"
            " which is which with --text-inputs 'ids=NAME,mask=NAME,types=NAME'; other inputs"
            " cannot be filled from a text"
        )
    return found["ids"], found.get("mask"), found.get("types")


def names_of(text: TextInput) -> tuple[str, ...]:
    """The inputs that are filled."""
    return tuple(name for name in (text.ids, text.mask, text.types) if name is not None)


def fills_of(text: TextInput) -> dict[str, int]:
    """What fills up each of them behind the end of a text."""
    return {name: text.pad if name == text.ids else 0 for name in names_of(text)}


def longest_of(task: Task) -> int:
    """Tokens of a row of a task that takes texts."""
    assert task.text is not None
    return next(spec.shape[0] for spec in task.inputs if spec.name == task.text.ids)


def check_text(task: Task) -> None:
    """Refuse a way from texts to rows that a task cannot have; none is fine.

    Raises:
        InvalidInput: its inputs are others.
    """
    text = task.text
    if text is None:
        return
    where = f"task {task.name!r}"
    names = names_of(text)
    specs = {spec.name: spec for spec in task.inputs}
    if len(set(names)) != len(names) or set(names) != specs.keys():
        raise InvalidInput(
            f"{where} has {counted(len(specs), 'input')} ({', '.join(specs)}), and a text would"
            f" fill {', '.join(names)}"
        )
    axes = {axis.input: axis.axis for axis in (task.bucket.axes if task.bucket else ())}
    for name in names:
        _check_input(where, specs[name], axes if task.bucket is not None else None)
    if len({specs[name].shape for name in names}) > 1:
        raise InvalidInput(f"the inputs of {where} that a text fills have different lengths")
    check_pad(text, where)
    if task.bucket is not None:
        for axis in task.bucket.axes:
            _check_padding(where, text, axis)


def check_pad(text: TextInput, where: str) -> None:
    """
    Raises:
        InvalidInput: what fills up is no number of a token.
    """
    if type(text.pad) is not int or text.pad < 0:
        raise InvalidInput(f"what fills up the texts of {where} must be the number of a token")


def _check_padding(where: str, text: TextInput, axis: OpenAxis) -> None:
    if axis.input == text.mask and axis.pad:
        raise InvalidInput(
            f"{where} fills up the mask {axis.input!r} with {axis.pad:g}, and behind the end of a"
            " text it has to be 0"
        )


def _check_input(where: str, spec: TensorSpec, open_axes: Mapping[str, int] | None) -> None:
    wrong = ""
    if spec.dtype not in WHOLE:
        wrong = f"holds {spec.dtype}, and numbers of tokens are {' or '.join(WHOLE)}"
    elif len(spec.shape) != 1:
        wrong = f"has rows of {len(spec.shape)} axes, and those of texts have one"
    elif open_axes is not None and open_axes.get(spec.name) != 0:
        wrong = "is not open along its rows"
    if wrong:
        raise InvalidInput(f"input {spec.name!r} of {where} {wrong}")
