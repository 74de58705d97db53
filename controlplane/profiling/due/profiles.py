"""Profiles that are missing or not true any more.

A machine that is sliced anew has new device kinds; a library that was updated makes profiles stale;
live latency may contradict them; and a prediction that queries rely on wants to be measured.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from controlplane.profiling.due.staleness import host_of
from controlplane.views.catalog.tasks import find_task
from planner.sentences import there_are
from profiler.fingerprint import is_stale
from variants.errors import NotFound
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    Profile,
    ProfileSource,
    ProfilingRequest,
    Stage,
    Variant,
)

NEVER = "was never measured here"
ASKED_FOR = "was asked for at "
"""How the reason of an operator's request begins; the time follows."""


class Cause(StrEnum):
    """Why a profile is to be measured, the most pressing first."""

    MISSING = "missing"
    REQUESTED = "requested"
    STALE = "stale"
    PREDICTED = "predicted"
    DISTURBED = "disturbed"
    """Other work took the processor meanwhile. Only nodes of a cluster are measured for it."""
    ASKED = "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class DueProfile:
    """A profile that is to be measured."""

    variant: Variant
    kind: DeviceKind
    cause: Cause
    reason: str
    """One clause."""
    asked_at: str = ""
    """When an operator asked for it; empty: nobody did."""


Hosts = Callable[[Variant, DeviceKind], Collection[str]]
"""Fingerprints of the machines on which workers of a kind run a variant; none where they are not
known."""


def hosts_here(variant: Variant, _kind: DeviceKind) -> Collection[str]:
    """All kinds are slices of this machine."""
    return (host_of(variant),)


def hosts_unknown(_variant: Variant, _kind: DeviceKind) -> Collection[str]:
    """Kinds are slices of machines that cannot be seen from here."""
    return ()


def due_profiles(
    catalog: CatalogSnapshot,
    kinds: Iterable[DeviceKind],
    requests: Iterable[ProfilingRequest] = (),
    *,
    hosts: Hosts = hosts_here,
) -> list[DueProfile]:
    """What to measure on these device kinds, for variants that answer, the most pressing first."""
    profiles = {(p.task, p.variant, p.device_kind): p for p in catalog.profiles}
    asked = {(r.task, r.variant, r.device_kind): r for r in requests}
    serving = {
        (v.task, v.model, v.version)
        for v in catalog.versions
        if v.stage in (Stage.LIVE, Stage.CANARY)
    }
    found: list[DueProfile] = []
    for variant in catalog.variants:
        if (variant.task, variant.model, variant.version) not in serving:
            continue
        for kind in kinds:
            key = (*variant.key, kind.name)
            if not variant.runs_on(kind):
                continue
            request = asked.get(key)
            cause = _cause(
                profiles.get(key), None if request is None else request.reason, hosts(variant, kind)
            )
            if cause is not None:
                by_operator = request is not None and request.reason.startswith(ASKED_FOR)
                found.append(
                    DueProfile(
                        variant=variant,
                        kind=kind,
                        cause=cause[0],
                        reason=cause[1],
                        asked_at=request.at if request and by_operator else "",
                    )
                )
    order = list(Cause)
    return sorted(found, key=lambda one: order.index(one.cause))


def to_measure(
    catalog: CatalogSnapshot,
    kinds: Iterable[DeviceKind],
    requests: Iterable[ProfilingRequest] = (),
    *,
    task: str | None = None,
    variant: str | None = None,
    everything: bool = False,
    hosts: Hosts = hosts_here,
) -> list[DueProfile]:
    """What to measure of a task, or one variant of it, or all tasks.

    One variant is measured whatever its profile says, and with ``everything`` all are.

    Raises:
        TaskNotFound: there is no such task.
        NotFound: the task has no such variant, or it has no business on these device kinds.
    """
    kinds = tuple(kinds)
    if task is not None:
        find_task(catalog, task)
    chosen = [
        one for one in catalog.variants if task in (None, one.task) and variant in (None, one.name)
    ]
    if variant is not None and not chosen:
        named = there_are((one.name for one in catalog.variants if one.task == task), variant)
        raise NotFound(f"task {task!r} has no variant {variant!r}{named}")
    names = {one.key for one in chosen}
    found = [
        one
        for one in due_profiles(catalog, kinds, requests, hosts=hosts)
        if one.variant.key in names
    ]
    if variant is None and not everything:
        return found
    known = {(one.variant.key, one.kind.name) for one in found}
    found += [
        DueProfile(variant=one, kind=kind, cause=Cause.ASKED, reason="you asked for it")
        for one in chosen
        for kind in kinds
        if one.runs_on(kind) and (one.key, kind.name) not in known
    ]
    if variant is not None and not found:
        there = ", ".join(kind.name for kind in kinds)
        raise NotFound(f"{variant} does not run on {there}")
    return found


def requests_for(
    due: Iterable[DueProfile], at: str, *, by_operator: bool = True
) -> tuple[ProfilingRequest, ...]:
    """What the control loop is asked for, by an operator or for the reason that each is due for, so
    that these are measured."""
    return tuple(
        ProfilingRequest(
            task=one.variant.task,
            variant=one.variant.name,
            device_kind=one.kind.name,
            reason=ASKED_FOR + at if by_operator else one.reason,
            at=at,
        )
        for one in due
    )


def measured_while_serving(kind: DeviceKind) -> bool:
    """Whether one machine measures on a kind while its workers answer queries.

    Not on a GPU: its worker counts all of its memory as its own.
    """
    return kind.gpu is None


def _cause(
    profile: Profile | None, request: str | None, hosts: Collection[str]
) -> tuple[Cause, str] | None:
    if profile is None:
        return Cause.MISSING, request or NEVER
    if profile.source is ProfileSource.EXACT:
        return None
    if request is not None:
        return Cause.REQUESTED, request
    changed = [words for host in hosts if (words := is_stale(profile.host, host)) is not None]
    if changed and len(changed) == len(hosts):  # of several machines of a kind, one is enough
        return Cause.STALE, changed[0]
    if profile.source is ProfileSource.PREDICTED:
        return Cause.PREDICTED, "its latency was predicted"
    return None
