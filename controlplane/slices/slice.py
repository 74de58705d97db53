"""What a slice is: a device kind that a machine is split into, and how many workers there are."""

import re
from dataclasses import dataclass
from enum import StrEnum

from variants.types import DeviceKindName

MOST_WORKERS = 256
"""Of one kind."""
GPU_CORES = 1
"""Cores of a worker that has a GPU, where nothing was said of them."""
_CORES = re.compile(r"cpu-([1-9][0-9]{0,8})(?:-.*)?")


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
