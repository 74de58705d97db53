"""What the headers of a query by image ask for."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from variants.errors import InvalidInput
from variants.images import number_in, numbers_in

KIND = "image/"
"""How the ``Content-Type`` of such a query begins."""
TASK = "x-modelless-task"
SLO = {"slo-latency-ms": "latency_ms", "slo-accuracy": "accuracy", "slo-cost": "cost"}
"""Headers with a number, and what they are in the ``slo`` of a JSON body."""
PREFER = "slo-prefer"
BESIDE = {
    "x-modelless-variant": "variant",
    "x-modelless-model-version": "model_version",
    "x-modelless-priority": "priority",
    "x-modelless-best-effort": "best_effort",
}
"""Headers, and the fields of a JSON body beside its ``slo``."""
MEAN, STD = "image-mean", "image-std"
OUTLINE = "x-modelless-slo"
"""Repeats what a JSON body says."""
OURS = ("slo-", "image-", "x-modelless-")
"""How headers begin that ask for something."""
KNOWN = (TASK, *SLO, PREFER, *BESIDE, MEAN, STD, OUTLINE)
_IN_HEADERS = {**SLO, PREFER: "prefer", **BESIDE}


def asked_by_image(fields: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, Any]:
    """What is asked, as the reader's process is told.

    Args:
        fields: the request's headers by their names in lower case.
        parameters: those of its address, of which ``task`` may name the task.

    Returns:
        ``task``; ``slo`` and what else ``BESIDE`` names as in a JSON body; ``mean``
        and ``std``, lists of one number for all channels or one for each. What no header says is
        None.

    Raises:
        InvalidInput: the task is not named, or a header is no number, or nearly one of these, or
            the address says what a header has to say.
    """
    _refuse_unknown(fields)
    for header, name in _IN_HEADERS.items():
        if name in parameters:
            raise InvalidInput(
                f"an image says {name!r} in the header {shown(header)}, not in its address"
            )
    named = fields.get(TASK) or parameters.get("task")
    if not named:
        raise InvalidInput(
            "an image names its task in the header X-Modelless-Task, or as /v1/query?task=NAME"
        )
    slo: dict[str, Any] = {
        key: number_in(fields[name], _where(name)) for name, key in SLO.items() if name in fields
    }
    if PREFER in fields:
        slo["prefer"] = fields[PREFER].strip()
    if OUTLINE in fields and not slo:
        raise InvalidInput(
            f"header {shown(OUTLINE)} repeats what a JSON body says; an image says what is needed"
            f" in {', '.join(map(shown, (*SLO, PREFER)))}"
        )
    beside = {key: _stripped(fields.get(name)) for name, key in BESIDE.items()}
    return {
        "task": named, "slo": slo, **beside, "mean": _numbers(fields, MEAN),
        "std": _numbers(fields, STD),
    }  # fmt: skip


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in names:
        if name.startswith(OURS) and name not in KNOWN:
            near = get_close_matches(name, KNOWN, n=1)
            advice = f"did you mean {shown(near[0])}" if near else "known are"
            known = "?" if near else f": {', '.join(map(shown, KNOWN))}"
            raise InvalidInput(
                f"a query by image has no header {shown(name)[:60]!r}; {advice}{known}"
            )


def _stripped(text: str | None) -> str | None:
    return None if text is None else text.strip()


def _numbers(fields: Mapping[str, str], name: str) -> list[float] | None:
    text = fields.get(name)
    if text is None:
        return None
    found = numbers_in(text, _where(name))
    if name == STD and not all(found):
        raise InvalidInput(f"{_where(name)} is a divisor, and may not be 0")
    return list(found)


def _where(name: str) -> str:
    return f"header {shown(name)}"


def shown(name: str) -> str:
    """A header as it is written."""
    return name.title().replace("Slo-", "SLO-", 1) if name.startswith("slo-") else name.title()
