"""CoreShortage: whether the cores of a machine are short, as one sentence.

The most frequent cause of late answers lies outside of modelless: other programs on the machine, a
quota of its container, a hypervisor that has sold its cores twice. What workers and gateways read
of that (``variants.core_time``) is judged here; events, the page, ``modelless status``, ``explain``
and the doctor show it.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from variants.core_time import CoreTime
from variants.figures import counted, figure

WAITED = 0.5
"""Something waited for a core in this share of the time: below, most found one at once."""
TAKEN = 0.9
"""And this share of the cores was busy, or stolen: threads also wait a moment on cores that are
mostly idle."""
DELAYED = 0.5
"""Or a gateway or a worker was without a core for longer than it had one: programs of a positive
niceness, which do not count as busy, give way only in part."""
THROTTLED = 0.1
"""A quota held processes back in this share of the time: a query in ten meets it."""
STOLEN = 0.1
"""This share of the cores' time went to other machines."""
EASE = 0.8
"""The cores of a machine that were short suffice again where every reading is below this part of
its threshold."""


class CoreLevel(StrEnum):
    """Whether what runs has the cores that it needs."""

    THERE = "cores_there"
    SHORT = "cores_short"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreShortage:
    """Why the cores of one machine are short."""

    host: str
    why: str
    """``63 % of the time something waited for a core, ...``, without a full stop."""
    remedy: str

    @property
    def sentence(self) -> str:
        return f"The cores of {self.host} are short: {self.why}; {self.remedy}."


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreStatus:
    """Of all machines of which something is known."""

    level: CoreLevel
    sentence: str
    """Empty where no machine is short of cores."""


def core_shortages(
    readings: Iterable[CoreTime], before: Container[str] = ()
) -> tuple[CoreShortage, ...]:
    """The machines whose cores are short, by name.

    Args:
        readings: of the gateways and workers, those of one machine each.
        before: machines whose cores were short before: they are until they clearly suffice, so that
            what hovers at a threshold does not come and go.
    """
    return tuple(
        found
        for one in machines(readings)
        if (found := _shortage(one, EASE if one.host in before else 1.0)) is not None
    )


def core_status(readings: Iterable[CoreTime], before: Container[str] = ()) -> CoreStatus:
    """The machines whose cores are short, in words; ``before`` as of ``core_shortages``."""
    short = core_shortages(readings, before)
    return CoreStatus(
        level=CoreLevel.SHORT if short else CoreLevel.THERE,
        sentence=" ".join(one.sentence for one in short),
    )


def machines(readings: Iterable[CoreTime]) -> tuple[CoreTime, ...]:
    """One reading for each machine, by name: what its processes use together, and of what each of
    them sees alike the worst."""
    by_host: dict[str, list[CoreTime]] = {}
    for one in readings:
        by_host.setdefault(one.host, []).append(one)
    return tuple(
        CoreTime(
            host=host,
            cores=max(one.cores for one in found),
            used=sum(one.used for one in found),
            busy=_most(one.busy for one in found),
            waited=_most(one.waited for one in found),
            throttled=_most(one.throttled for one in found),
            quota=min((one.quota for one in found if one.quota is not None), default=None),
            stolen=_most(one.stolen for one in found),
            delayed=_most(one.delayed for one in found),
        )
        for host, found in sorted(by_host.items())
    )


def reading(told: Mapping[str, Any] | None) -> CoreTime | None:
    """What a process told of its machine; None where it told nothing that is understood."""
    try:
        return CoreTime(**{name: told[name] for name in _FIELDS if name in told}) if told else None
    except (KeyError, TypeError):
        return None


_FIELDS = tuple(CoreTime.__dataclass_fields__)


def _shortage(one: CoreTime, ease: float) -> CoreShortage | None:
    taken = None if one.busy is None else one.busy + (one.stolen or 0.0)
    ours = f"gateways and workers use {_cores(one.used)} of its {counted(one.cores, 'core')}"
    if (one.throttled or 0.0) >= ease * THROTTLED:
        of = "" if one.quota is None else f" of {counted_cores(one.quota)}"
        share = _percent(one.throttled)
        why = (
            f"a quota{of} held processes back in {share} % of the time, gateways and workers use "
            f"{one.used:.2f}"
        )
        return CoreShortage(host=one.host, why=why, remedy="raise the quota, or ask less of it")
    if one.stolen is not None and one.stolen >= ease * STOLEN * one.cores:
        why = f"other machines had {_cores(one.stolen)} of them instead, {ours}"
        return CoreShortage(
            host=one.host, why=why, remedy="move it to a host with cores of its own"
        )
    if one.waited is None or taken is None or one.waited < ease * WAITED:
        return None
    delayed = (one.delayed or 0.0) >= ease * DELAYED
    if taken < ease * TAKEN * one.cores and not delayed:
        return None
    others = max(0.0, (one.busy or 0.0) - one.used)
    why = (
        f"{_percent(one.waited)} % of the time something waited for one, {ours}, other programs "
        f"{_cores(others)}"
    )
    if delayed:
        why += f", and one of ours had none for {_percent(one.delayed)} % of its time with work"
    remedy = "stop some of these, or run modelless on another machine"
    if others < one.used:
        remedy = "more is asked than they can do: add a machine, or variants that take less time"
    return CoreShortage(host=one.host, why=why, remedy=remedy)


def counted_cores(cores: float) -> str:
    """``0.25 cores``, ``1 core``."""
    return f"{figure(cores, 2)} {'core' if cores == 1 else 'cores'}"


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _cores(count: float) -> str:
    return f"{count:.1f}"


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f}"
