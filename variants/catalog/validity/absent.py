"""What is said of a name that is not in a catalog, in the same words wherever it is looked up."""

from collections.abc import Iterable

from variants.errors import NotFound
from variants.figures import some_of

NAMED = 5
"""Numbers that an error lists at most."""


def no_task(task: str) -> NotFound:
    return NotFound(f"there is no task {task!r}")


def no_model(task: str, model: str) -> NotFound:
    return NotFound(f"task {task!r} has no model {model!r}")


def no_version(task: str, label: str) -> NotFound:
    """``label`` is that of a version, such as ``mlp-v2``."""
    return NotFound(f"task {task!r} has no version {label}")


def no_version_of(model: str, number: int, known: Iterable[int]) -> NotFound:
    """``model`` names a model in words, ``known`` are the numbers of its versions."""
    newest = sorted(set(known), reverse=True)
    return NotFound(f"{model} has no version {number}{_others(newest)}")


def no_variant(task: str, variant: str) -> NotFound:
    return NotFound(f"task {task!r} has no variant {variant!r}")


def no_device_kind(kind: str) -> NotFound:
    return NotFound(f"there is no device kind {kind!r}")


def no_peak(id: int, known: Iterable[int]) -> NotFound:
    """``known`` are the ids of the declared peaks that there are."""
    return _no_number("declared peak", id, known)


def no_rule(id: int, known: Iterable[int]) -> NotFound:
    """``known`` are the ids of the rules that there are."""
    return _no_number("rule", id, known)


def _no_number(what: str, id: int, known: Iterable[int]) -> NotFound:
    return NotFound(f"there is no {what} {id}{_others(known)}")


def _others(known: Iterable[int]) -> str:
    numbers = [str(one) for one in known]
    return f"; there are: {some_of(numbers, NAMED)}" if numbers else ", nor any other"


def no_tokenizer(digest: str) -> NotFound:
    return NotFound(f"there is no tokenizer {digest[:12]}")
