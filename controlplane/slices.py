"""Slices: the device kinds that a machine is split into, as people write them.

``2xcpu-1,1-4xcpu-2:memory_mib=1024:usd_per_hour=0.05`` is two workers of one core, and one to four
of two cores, of which plans decide how many run; ``1xnvidia-h200`` is a worker with a GPU. Kinds
are separated by commas and their properties by colons; the names of the properties are those of the
planning files' columns. ``1xcpu-2|2xcpu-1`` is two layouts of one machine, of which plans choose: a
worker of two cores, or two of one.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from controlplane.gpus import NAMES as GPU_NAMES
from controlplane.gpus import GpuModel
from variants.types import NAME, DeviceKindName

FOUND = "found"
"""In place of slices: those that the nodes of a cluster are, now and while it runs."""
MOST_KINDS = 32
MOST_WORKERS = 256
"""Of one kind."""
MOST_CORES = 4096
"""Of one worker."""
MOST_LAYOUTS = 8
_NEXT_LAYOUT = re.compile(r"\|(?=\s*[0-9]{1,9}(?:-[0-9]{1,9})?xcpu-)")
"""Between two layouts; between two values of a label there is a stroke as well."""
_COUNTED = re.compile(r"(?:([0-9]{1,9})(?:-([0-9]{1,9}))?x)?(.*)", re.DOTALL)
_CORES = re.compile(r"cpu-([1-9][0-9]{0,8})(?:-.*)?")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ()/._-]{0,79}")
GPU_CORES = 1
"""Cores of a worker that has a GPU, where nothing was said of them."""
_LABEL = re.compile(r"([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class NodesWith:
    """The nodes of a cluster whose label has one of these values."""

    label: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        """As it is written, and read again: ``rack=7|8``."""
        return f"{self.label}={'|'.join(self.values)}"


class Source(StrEnum):
    """Where a kind comes from."""

    SET = "set"
    """By the settings."""
    FOUND = "found"
    """By a look at the machine, or at the nodes of the cluster."""
    NUMBERED = "numbered"
    """By a look at the nodes; the settings say how many workers there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One device kind: what a worker of it is, and how many there are."""

    name: str
    cores: int
    most: int
    """Workers; the most of them where plans decide."""
    least: int | None = None
    """Fewest workers that plans leave; None where the number is fixed."""
    memory_mib: float | None = None
    """What variants may take on one worker."""
    usd_per_hour: float | None = None
    """Price of one worker."""
    idle_w: float | None = None
    """Watts of one idle worker; None: as is set for all, or as counters say."""
    gpu: str | None = None
    """What its GPU is called; empty where it has one and nothing more was said of it."""
    nodes: NodesWith | None = None
    """Where its workers run; None: wherever there is room."""
    source: Source = Source.SET

    def __str__(self) -> str:
        """As it is written, and read again."""
        count = f"{self.most}" if self.least is None else f"{self.least}-{self.most}"
        told = [
            f"{name}={value!r}"
            for name in ("memory_mib", "usd_per_hour", "idle_w")
            if (value := getattr(self, name)) is not None
        ]
        told += [f"gpu={self.gpu}"] if self.gpu else []
        told += [f"nodes={self.nodes}"] if self.nodes else []
        told += [f"source={self.source}"] if self.source is not Source.SET else []
        return ":".join([f"{count}x{self.name}", f"cores={self.cores}", *told])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A slice with all that was not said of it filled in."""

    name: DeviceKindName
    cores: int
    most: int
    least: int | None
    memory_mib: float
    usd_per_hour: float
    idle_w: float | None
    gpu: str | None = None
    nodes: NodesWith | None = None
    source: Source = Source.SET

    @property
    def may_be_none(self) -> bool:
        """Whether an installation may be without a worker of it."""
        return self.least == 0 or not self.most

    def least_of(self, count: int) -> int:
        """Fewest workers that plans leave of so many that are wanted."""
        return count if self.least is None else min(self.least, count)


def cpu_kind(cores: int) -> str:
    """The device kind of a worker with so many cores: the one place that names it."""
    return f"cpu-{cores}"


def cores_of(name: str) -> int | None:
    """The cores that the name of a kind says; None where it says none."""
    named = _CORES.fullmatch(name)
    return int(named[1]) if named else None


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


def gpu_slices(models: Iterable[GpuModel], most: int = MOST_WORKERS) -> tuple[Slice, ...]:
    """A worker for each GPU, ``most`` in all."""
    found: list[Slice] = []
    for model in models:
        count = min(model.count, most - sum(one.most for one in found))
        if count > 0:
            found.append(Slice(name=model.kind, cores=GPU_CORES, most=count, gpu=model.name))
    return tuple(found)


def filled_in(
    slices: Sequence[Slice],
    *,
    memory_mib: float,
    all_memory_mib: float,
    usd_per_core_hour: float,
    elastic: bool,
    usd_per_gpu_hour: float = 0.0,
    gpus: Sequence[GpuModel] = (),
) -> tuple[Kind, ...]:
    """The slices with their memory and price.

    Args:
        memory_mib: of one worker without a GPU, where nothing else was said of it; 0: its part, by
            cores, of ``all_memory_mib``.
        elastic: whether plans decide of all kinds how many workers run, and leave one.
        gpus: those of this machine.

    Raises:
        ValueError: the memory of a GPU is not known.
    """
    cores = sum(one.cores * one.most for one in slices if one.gpu is None)

    def memory_of(one: Slice) -> float:
        if one.memory_mib:
            return one.memory_mib
        if one.gpu is not None:
            return _model_of(one, gpus).usable_mib
        return memory_mib or all_memory_mib / (max(cores, one.cores) / one.cores)

    def price_of(one: Slice) -> float:
        if one.usd_per_hour is not None:
            return one.usd_per_hour
        return usd_per_core_hour * one.cores if one.gpu is None else usd_per_gpu_hour

    return tuple(
        Kind(
            name=DeviceKindName(one.name),
            cores=one.cores,
            most=one.most,
            least=min(1, one.most) if elastic and one.least is None else one.least,
            memory_mib=memory_of(one),
            usd_per_hour=price_of(one),
            idle_w=one.idle_w,
            gpu=one.gpu if one.gpu != "" else _called(one, gpus),
            nodes=one.nodes,
            source=one.source,
        )
        for one in slices
    )


def _model_of(one: Slice, gpus: Sequence[GpuModel]) -> GpuModel:
    """The GPUs of this machine that a slice names."""
    found = _named(one, gpus)
    if found is None:
        here = ", ".join(model.kind for model in gpus) or "none"
        raise ValueError(
            f"{one.name}: there is no such GPU here (there is: {here}), so say what variants may "
            f"take of it, such as {one.name}:memory_mib=16000"
        )
    return found


def _called(one: Slice, gpus: Sequence[GpuModel]) -> str:
    """What the GPU of a slice is called that only says that it has one."""
    found = _named(one, gpus)
    return one.name if found is None else found.name


def _named(one: Slice, gpus: Sequence[GpuModel]) -> GpuModel | None:
    """Those of a slice's own words, or else of its kind's name, which may have a suffix."""
    by_words = [model for model in gpus if model.name == one.gpu]
    by_name = [model for model in gpus if f"{one.name}-".startswith(f"{model.kind}-")]
    return next(iter((*by_words, *by_name)), None)


def written(kinds: Iterable[Kind]) -> str:
    """The text that stands for these."""
    return ",".join(
        str(
            Slice(
                name=one.name,
                cores=one.cores,
                most=one.most,
                least=one.least,
                memory_mib=one.memory_mib,
                usd_per_hour=one.usd_per_hour,
                idle_w=one.idle_w,
                gpu=one.gpu,
                nodes=one.nodes,
                source=one.source,
            )
        )
        for one in kinds
    )


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
        raise ValueError(f"{name} does not say how many cores it has; add :cores=N")
    if named and cores != named:
        raise ValueError(f"{name} has {named} by its name and cores={cores}")
    if not 1 <= cores <= MOST_CORES:
        raise ValueError(f"{name} has {cores} cores, and a worker may have 1 to {MOST_CORES}")
    return Slice(name=name, cores=cores, least=least, most=most, **values)


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
    value = float(text)
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
