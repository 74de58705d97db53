"""How the reply to a request of the Open Inference Protocol is to look."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from controlplane.gateway.query.query_fields import flag_of, number_of, parameters_of
from controlplane.gateway.query.replies import V2Request
from controlplane.gateway.query.v2.inputs import REGION, not_shared
from variants.checks.json_shape import shown
from variants.errors import InvalidInput
from variants.metrics.metric import parse_metric
from variants.types import Task

MAX_ID = 1_024
"""Characters of a request's own id, which its answer repeats."""


def v2_form(outputs: Any, parameters: Mapping[str, Any], task: Task, id_: str | None) -> V2Request:
    """How the reply is to look.

    Args:
        outputs: for each output that is asked for an object with its name and parameters; nothing
            asks for all.
        id_: the request's own.

    Raises:
        InvalidInput: an output is not the task's, or its parameters are wrong.
    """
    if id_ is not None and len(id_) > MAX_ID:
        raise InvalidInput(f"'id' must have at most {MAX_ID} characters")
    known = [spec.name for spec in task.outputs]
    default = flag_of(parameters.get("binary_data_output", False), "binary_data_output")
    if outputs is None or outputs == []:
        form = _of_all(tuple(known) if default else ())
        return form if id_ is None else replace(form, id=id_)
    if not isinstance(outputs, list):
        raise InvalidInput("'outputs' must be a list")
    names: list[str] = []
    raw: set[str] = set()
    classes: dict[str, int] = {}
    for entry in outputs:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            expected = ", ".join(known)
            raise InvalidInput(f"each of 'outputs' must be an object with a name of: {expected}")
        if name not in known:
            expected = ", ".join(known)
            raise InvalidInput(
                f"output {shown(name)} is not an output of the task, which has: {expected}"
            )
        if name in names:
            raise InvalidInput(f"output {shown(name)} is asked for twice")
        names.append(name)
        own = parameters_of(entry, "parameters of output", name)
        if REGION in own:
            raise not_shared(f"output {name!r}")
        if count := own.get("classification"):
            classes[name] = _classes(count, task)
        binary = own.get("binary_data")
        if default if binary is None else flag_of(binary, "binary_data"):
            raw.add(name)
    return V2Request(id=id_, outputs=tuple(names), binary=frozenset(raw), classes=classes)


@lru_cache(maxsize=1024)
def _of_all(binary: tuple[str, ...]) -> V2Request:
    """A reply with all outputs, these as raw bytes."""
    return V2Request(id=None, outputs=None, binary=frozenset(binary))


def _classes(count: Any, task: Task) -> int:
    if not parse_metric(task.metric).classifies:
        raise InvalidInput(
            f"classification is for tasks with classes, and {task.name!r} has none: its accuracy is"
            f" by {task.metric}"
        )
    number = number_of(count, "classification")
    if number < 1 or number != int(number):
        raise InvalidInput("classification must be a number of classes, 1 or more")
    return int(number)
