"""What the headers of a query by image ask for."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from variants.errors import InvalidInput

KIND = "image/"
"""How the ``Content-Type`` of such a query begins."""
TASK = "x-modelless-task"
SLO = {"slo-latency-ms": "latency_ms", "slo-accuracy": "accuracy", "slo-cost": "cost"}
"""Headers, and what they are in the ``slo`` of a JSON body."""
MEAN, STD = "image-mean", "image-std"
MOST_CHANNELS = 3
_LONGEST = 200


def asked_by_image(fields: Mapping[str, str], task: str | None) -> dict[str, Any]:
    """What is asked, as the reader's process is told.

    Args:
        fields: the request's headers by their names in lower case.
        task: its parameter ``task``, if it has one.

    Returns:
        ``task``, ``slo`` as in a JSON body, and ``mean`` and ``std``, lists of one number for all
        channels or one for each; None without the header.

    Raises:
        InvalidInput: the task is not named, or a header is no number.
    """
    named = fields.get(TASK) or task
    if not named:
        raise InvalidInput(
            "an image names its task in the header X-Modelless-Task, or as /v1/query?task=NAME"
        )
    slo = {key: _number(fields[name], name) for name, key in SLO.items() if name in fields}
    return {"task": named, "slo": slo, "mean": _numbers(fields, MEAN), "std": _numbers(fields, STD)}


def _numbers(fields: Mapping[str, str], name: str) -> list[float] | None:
    text = fields.get(name)
    if text is None:
        return None
    found = [_number(part, name) for part in text[:_LONGEST].split(",")]
    if len(found) not in (1, MOST_CHANNELS):
        raise InvalidInput(
            f"header {_shown(name)} has one number, or one for each of three channels"
        )
    if name == STD and not all(found):
        raise InvalidInput(f"header {_shown(name)} is a divisor, and may not be 0")
    return found


def _number(text: str, name: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise InvalidInput(f"header {_shown(name)} must be a number, not {text.strip()[:40]!r}")
    return found


def _shown(name: str) -> str:
    """A header as it is written."""
    return name.title().replace("Slo", "SLO")
