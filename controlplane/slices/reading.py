"""Slices as people write them, and the sentence for everything that can be wrong in them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from controlplane.gpus import NAMES as GPU_NAMES
from controlplane.slices.slice import GPU_CORES, MOST_WORKERS, NodesWith, Slice, Source, cores_of
from variants.figures import read_number
from variants.types import NAME, DeviceKindName

FOUND = "found"
"""In place of slices: those that the nodes of a cluster are, now and while it runs."""
MOST_KINDS = 32
MOST_CORES = 4096
"""Of one worker."""
MOST_LAYOUTS = 8
_NEXT_LAYOUT = re.compile(r"\|(?=\s*[0-9]{1,9}(?:-[0-9]{1,9})?xcpu-)")
"""Between two layouts; between two values of a label there is a stroke as well."""
_COUNTED = re.compile(r"(?:([0-9]{1,9})(?:-([0-9]{1,9}))?x)?(.*)", re.DOTALL)
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ()/._-]{0,79}")
_LABEL = re.compile(r"([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@lru_cache(maxsize=64)
def slices_of(text: str) -> tuple[Slice, ...]:
    """The slices that a text names, in its order; none where it is empty or says ``found``.

    Of several layouts those of all: of a kind that not all have alike, plans decide how many run.

    Raises:
        ValueError: it is wrong; the sentence says what.
    """
    listed = [_listed(layout) for layout in _NEXT_LAYOUT.split(text)]
    return listed[0] if len(listed) == 1 else _united(listed)


@lru_cache(maxsize=64)
def layouts_of(text: str) -> tuple[Mapping[DeviceKindName, int], ...]:
    """How many workers of each kind each layout of a text has, in its order; none where it has one
    layout, and nothing is to be chosen.

    Raises:
        ValueError: it is wrong; the sentence says what.
    """
    listed = [_listed(layout) for layout in _NEXT_LAYOUT.split(text)]
    if len(listed) == 1:
        return ()
    return tuple({DeviceKindName(one.name): one.most for one in each} for each in listed)


def _united(layouts: Sequence[Sequence[Slice]]) -> tuple[Slice, ...]:
    if len(layouts) > MOST_LAYOUTS:
        raise ValueError(f"there are {len(layouts)} layouts, and at most {MOST_LAYOUTS} may be")
    different = {frozenset((one.name, one.most) for one in each) for each in layouts}
    if not all(different) or len(different) < len(layouts):
        raise ValueError("two layouts are the same, or one names no worker")
    found: dict[str, Slice] = {}
    counts: dict[str, list[int]] = {}
    for one in (one for layout in layouts for one in layout):
        if one.least is not None:
            raise ValueError(f"{one}: where plans choose among layouts, each says one number")
        if not one.most:
            raise ValueError(f"a layout with 0x{one.name} is one without it, so leave that out")
        known = found.setdefault(one.name, one)
        counts.setdefault(one.name, []).append(one.most)
        alike = (
            replace(known, most=one.most),
            Slice(name=one.name, cores=one.cores, most=one.most),
        )
        if one not in alike:
            raise ValueError(f"{one.name} has other properties in another layout")
    for name, one in found.items():
        same = len(counts[name]) == len(layouts) and len(set(counts[name])) == 1
        if one.gpu is not None and not same:
            raise ValueError(f"{name} has a GPU, so each layout has to have as many of it")
        found[name] = replace(one, most=max(counts[name]), least=None if same else 0)
    return tuple(found.values())


def _listed(text: str) -> tuple[Slice, ...]:
    """The slices of one layout."""
    parts = [] if text.strip() == FOUND else [part.strip() for part in text.split(",")]
    if parts and parts[-1] == "":
        parts.pop()
    found = tuple(_slice(part) for part in parts)
    if len(found) > MOST_KINDS:
        raise ValueError(f"there are {len(found)} device kinds, and at most {MOST_KINDS} may be")
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} stands there twice")
    if found and not any(one.most for one in found):
        raise ValueError("no kind has a worker")
    return found


def _slice(text: str) -> Slice:
    head, *properties = (part.strip() for part in text.split(":"))
    counted = _COUNTED.fullmatch(head)
    assert counted is not None
    first, last, name = counted.groups()
    if not NAME.fullmatch(name):
        wrong = "is no device kind with a number of workers, such as 2xcpu-1"
        hint = "; a layout begins with a number and a cpu- kind" if "|" in name else ""
        raise ValueError(f"{head[:60]!r} {wrong}{hint}")
    least, most = (None, int(first or 1)) if last is None else (int(first), int(last))
    if most > MOST_WORKERS:
        raise ValueError(f"{most} workers {name} are more than {MOST_WORKERS}")
    if least is not None and least > most:
        raise ValueError(f"{least}-{most}x{name}: the first number is the larger one")
    values = _properties(name, properties)
    named = cores_of(name)
    gpu = values.setdefault("gpu", "" if name.startswith(GPU_NAMES) else None)
    cores = values.pop("cores", named if named else None if gpu is None else GPU_CORES)
    if named and gpu is not None:
        raise ValueError(f"{name} is a CPU by its name, and gpu={gpu} says that it has a GPU")
    if cores is None:
        raise ValueError(f"{name} does not say how many cores it has; {_named(name)}add :cores=N")
    if named and cores != named:
        raise ValueError(f"{name} has {named} by its name and cores={cores}")
    if not 1 <= cores <= MOST_CORES:
        raise ValueError(f"{name} has {cores} cores, and a worker may have 1 to {MOST_CORES}")
    return Slice(name=name, cores=cores, least=least, most=most, **values)


def _named(name: str) -> str:
    """How cores are written where a name is only short of them."""
    return "write cpu-1 for one core, or " if name == "cpu" else ""


def _properties(name: str, texts: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or key not in _READERS:
            raise ValueError(
                f"{name}: {text[:60]!r} is none of its properties, which are "
                f"{', '.join(f'{known}=' for known in _READERS)}"
            )
        if key in values:
            raise ValueError(f"{name}: {key} stands there twice")
        try:
            values[key] = _READERS[key](value)
        except ValueError:
            raise ValueError(f"{name}: {key}={value[:40]} is not possible") from None
    return values


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    value = read_number(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def _above_zero(text: str) -> float:
    if (value := _number(text)) == 0:
        raise ValueError(text)
    return value


def _gpu(text: str) -> str:
    if not _GPU.fullmatch(text):
        raise ValueError(text)
    return text


def _nodes(text: str) -> NodesWith:
    label, _, values = text.partition("=")
    found = NodesWith(label, tuple(values.split("|")))
    if not _LABEL.fullmatch(label) or not all(map(_LABEL_VALUE.fullmatch, found.values)):
        raise ValueError(text)
    return found


_READERS: dict[str, Callable[[str], object]] = {
    "cores": _whole,
    "memory_mib": _above_zero,
    "usd_per_hour": _number,
    "idle_w": _above_zero,
    "gpu": _gpu,
    "nodes": _nodes,
    "source": Source,
}
