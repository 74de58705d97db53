"""The fields of a query, whatever its dialect: its task, its SLO and its flags, each checked.

All raise ``InvalidInput`` with what exactly is wrong.
"""

import math
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from heapq import nsmallest
from typing import Any

from controlplane.files.fields import MAX_LATENCY_MS
from controlplane.slo_parameters import (
    ACCURACY,
    BEST_EFFORT,
    COST,
    LATENCY,
    MODEL_VERSION,
    PREFER,
    PRIORITY,
)
from planner.sentences import there_are
from planner.types import DEFAULT_PRIORITY, MAX_PRIORITY
from variants.buckets import BucketedTask, TaskTable
from variants.checks.json_shape import shown
from variants.errors import InvalidInput, ModellessError, TaskNotFound
from variants.figures import read_number
from variants.types import NAME, Prefer, Task, TaskName, VariantName

MAX_NAME = 128

PARAMETERS = frozenset(
    {ACCURACY, BEST_EFFORT, COST, LATENCY, MODEL_VERSION, PREFER, PRIORITY, "timeout"}
)
"""Parameters of the Open Inference Protocol that say what a query needs."""

_PREFER = {str(p): p for p in Prefer}
_NEAR = 0.75
"""How like a known name is a mistake: ``latency_slo`` and ``min_acuracy`` are at 0.88 and 0.96."""
_OF_OTHERS = frozenset({"sequence_id", "sequence_start", "sequence_end", "binary_data_output"})
"""What the protocol's extensions name."""
_NOT_PARAMETERS = {
    "latency_ms": "it is called 'latency_slo_ms' here",
    "latency": "it is called 'latency_slo_ms' here",
    "deadline_ms": "it is called 'latency_slo_ms' here",
    "accuracy": "it is called 'min_accuracy' here",
    "cost": "it is called 'max_cost_usd_per_1k' here",
    "slo": "what it holds are parameters of their own here",
    "variant": "a version is named outside of the parameters here",
}
"""Fields of ``/v1/query`` and what else says it plainly, and what the Open Inference Protocol has
in their place."""


class AskedByLength(InvalidInput):
    """The name is that of a task for rows of several lengths: its bucket is known by the rows.

    It is caught where rows are read. Who does not catch it cannot take such a query.
    """

    def __init__(self, task: BucketedTask) -> None:
        super().__init__(
            f"task {task.name!r} takes rows of several lengths, and cannot be asked in this way"
        )
        self.task = task


def task_of(name: Any, tasks: Mapping[TaskName, Task]) -> Task:
    """
    Raises:
        InvalidInput: it is no name.
        AskedByLength: it is that of several buckets.
        TaskNotFound: there is no such task.
    """
    if name is None:
        raise InvalidInput("'task' is missing: the name of a task")
    if not isinstance(name, str):
        raise InvalidInput(f"'task' must be the name of a task, not {shown(name)}")
    task = tasks.get(TaskName(name))
    if task is None:
        bucketed = tasks.bucketed if isinstance(tasks, TaskTable) else {}
        if (of_lengths := bucketed.get(TaskName(name))) is not None:
            raise AskedByLength(of_lengths)
        shown_name = name if NAME.fullmatch(name) else name[:40]
        known = there_are([*tasks, *bucketed], shown_name) or "; nothing is registered yet"
        raise TaskNotFound(f"there is no task {shown_name!r}{known}")
    return task


def name_task(error: ModellessError, name: Any, tasks: Mapping[TaskName, Task]) -> None:
    """Note in an error which task was asked, if there is one of that name."""
    if isinstance(name, str) and name in tasks:
        error.asked_task = name


def parameters_of(
    document: Mapping[str, Any], what: str = "parameters", name: object = None
) -> Mapping[str, Any]:
    """Its parameters, which are none where it says nothing of them.

    Args:
        what: an error calls them.
        name: of what they are, where that has one.
    """
    found = document.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidInput(f"{what if name is None else f'{what} {name!r}'} must be an object")
    return found


def refuse_mistaken_names(parameters: Mapping[str, Any]) -> None:
    """Refuse what was meant to say what the query needs, and does not.

    The protocol lets clients send parameters that no server knows, so others change nothing. These
    would be missed: a query with another SLO than the client believes would be answered.

    Raises:
        InvalidInput: a parameter has the name of a field of ``/v1/query``, or nearly that of a
            known parameter.
    """
    for name in parameters:
        if name not in PARAMETERS and (advice := _advice(name)):
            then = " Known are" if advice.endswith("?") else "; known are"
            known = ", ".join(sorted(PARAMETERS))
            raise InvalidInput(f"there is no parameter {shown(name)}: {advice}{then}: {known}")


@lru_cache(maxsize=256)
def _advice(name: str) -> str:
    """What was meant by the name of a parameter that is not known; empty: something else."""
    if name in _NOT_PARAMETERS:
        return _NOT_PARAMETERS[name]
    if name in _OF_OTHERS or len(name) > MAX_NAME:
        return ""
    plain = name.lower().replace("-", "_")
    words = set(plain.split("_"))
    near = [one for one in sorted(PARAMETERS) if len(words) > 1 and words <= set(one.split("_"))]
    near = near or get_close_matches(plain, PARAMETERS, n=1, cutoff=_NEAR)
    return f"did you mean {near[0]!r}?" if near else ""


def number_of(value: Any, name: str) -> float:
    if isinstance(value, str):  # KServe's client sends all parameters as text
        try:
            value = read_number(value)
        except ValueError as error:
            raise InvalidInput(f"{name} must be a number, not {value[:40]!r}") from error
    if type(value) not in (int, float) or not math.isfinite(value):
        raise InvalidInput(f"{name} must be a number")
    return float(value)


def latency_bound(value: Any, name: str) -> float:
    """A latency in ms, above 0 and at most an hour; ``name`` is for the ``InvalidInput``."""
    number = number_of(value, name)
    if not 0 < number <= MAX_LATENCY_MS:
        raise InvalidInput(f"{name} must be above 0 and at most {MAX_LATENCY_MS:,.0f}")
    return number


def accuracy_bound(value: Any, name: str) -> float:
    """An accuracy in [0, 1]; ``name`` is for the ``InvalidInput``."""
    number = number_of(value, name)
    if not 0 <= number <= 1:
        raise InvalidInput(f"{name} must be between 0 and 1, such as 0.97 for 97 %")
    return number


def cost_bound(value: Any, name: str) -> float:
    """A cost in USD per 1,000 queries, not negative; ``name`` is for the ``InvalidInput``."""
    number = number_of(value, name)
    if number < 0:
        raise InvalidInput(f"{name} must not be negative")
    return number


def prefer_of(value: Any, name: str) -> Prefer:
    """What is preferred; ``name`` is for the ``InvalidInput``."""
    found = _PREFER.get(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidInput(f"{name} must be one of: {', '.join(_PREFER)}")
    return found


def priority_in(parameters: Mapping[str, Any]) -> int:
    """The priority, as the Open Inference Protocol has it: 1 is the highest, and 0 names none."""
    value = parameters.get("priority")
    if value is None:
        return DEFAULT_PRIORITY
    number = number_of(value, "priority")
    if number < 0 or number != int(number):
        raise InvalidInput("priority must be a whole number that is not negative")
    return min(int(number), MAX_PRIORITY) or DEFAULT_PRIORITY


def timeout_in(parameters: Mapping[str, Any]) -> float | None:
    """The deadline of the Open Inference Protocol, in ms; None where it names none, or 0."""
    value = parameters.get("timeout")
    timeout_us = 0.0 if value is None else number_of(value, "timeout")
    if not 0 <= timeout_us <= 1_000 * MAX_LATENCY_MS:
        most = 1_000 * MAX_LATENCY_MS
        raise InvalidInput(f"timeout must be in microseconds, from 0 to {most:,.0f}")
    return timeout_us / 1_000 or None


def flag_of(value: Any, name: str) -> bool:
    """A flag; null is none, as for every field of a query."""
    if type(value) is bool:
        return value
    if value is None:
        return False
    if value in ("true", "false"):
        return bool(value == "true")
    raise InvalidInput(f"{name} must be true or false")


def pinned_to(value: Any) -> VariantName | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput("'variant' must be the name of a variant")
    if len(value) > MAX_NAME:
        raise InvalidInput(f"no variant has a name of {len(value)} characters")
    return VariantName(value)


def version_of(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(
            "'model_version' must be the name of a model's version, such as 'cnn-v2'"
        )
    if len(value) > MAX_NAME:
        raise InvalidInput(f"no version of a model has a name of {len(value)} characters")
    return value


def unknown(what: str, given: Any, known: frozenset[str]) -> str:
    extra = ", ".join(nsmallest(5, (str(name)[:40] for name in given if name not in known)))
    return f"unknown {what}: {extra}; known are: {', '.join(sorted(known))}"
