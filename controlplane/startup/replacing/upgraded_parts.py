"""What `modelless upgrade` replaces: workers of each kind, gateways, the control loop."""

from collections.abc import Callable
from contextlib import suppress

import psutil

from controlplane.cluster.one_machine.spare_room import kept_cores
from controlplane.cluster.replicas import Deployment, ServeReplicas, room_for
from controlplane.cluster.serve_applications import (
    CONTROLLER_APP,
    GATEWAY_APP,
    WORKER_APP,
    applications_now,
)
from controlplane.controller.other_installations import leads
from controlplane.settings import Settings
from controlplane.slices import Kind
from controlplane.startup.replacing.parts import Part
from variants.container import free_memory_mib

MORE_MIB = 256.0
"""Free memory that starting one more worker leaves, at least."""


def gateways() -> Deployment:
    """The gateways, by the settings of now."""
    from controlplane import app

    return Deployment(application=GATEWAY_APP, name="gateway", built=app.gateway({}))


def parts(settings: Settings, joined: Settings, leader: Callable[[], str]) -> list[Part]:
    """In the order in which they are replaced.

    Args:
        joined: the same settings with the device kinds of now.
        leader: who leads, as the catalog keeps it.
    """
    from controlplane import app
    from controlplane.cluster.sending_settings import send

    secret = send(settings).secret
    found = []
    for kind in joined.kinds:
        name = WORKER_APP + kind.name
        if not applications_now({name}):
            continue
        workers = Deployment(
            application=name,
            name="worker",
            built=app.workers_of(kind, settings, secret, replicas=max(1, kind.most)),
        )
        room, lacks = (False, "")
        if kind.least is None or not joined.layouts:  # of which plans choose one as a whole
            room, lacks = _room(kind, workers, one_machine=not settings.ray_address)
        found.append(
            Part(
                words=f"workers {kind.name}",
                deployment=workers,
                extra=str(kind.name),
                room=room,
                lacks=lacks,
                worker_prefix=f"{kind.name}-",
                forgettable=kind.may_be_none,
            )
        )
    loop = Deployment(application=CONTROLLER_APP, name="controller", built=app.controller({}))
    of_gateways = gateways()
    # Each may have a node of its own (MODELLESS_GATEWAY_NODES), and none may be left for one more.
    more = not settings.ray_address or room_for(of_gateways)
    return [
        *found,
        Part(words="gateways", deployment=of_gateways, extra="gateways", room=more),
        Part(
            words="control loop",
            deployment=loop,
            ready=lambda replica: leads(leader(), replica),
        ),
    ]


def none_kept(kind: Kind, kept: int) -> str:
    """Why nothing is kept for one more worker of a machine; empty where nothing is to be.

    Args:
        kept: cores that are.
    """
    if kept or kind.gpu is not None:
        return ""
    return (
        "one more is not started first: a release that kept no room for it has started Ray; from"
        " the next `modelless down` and `modelless up` on, room is kept"
    )


def _room(kind: Kind, workers: Deployment, *, one_machine: bool) -> tuple[bool, str]:
    """Whether there is room for one more worker; if only memory is short, or the installation is
    older than room is kept, in words.

    On one machine it shares the cores of the others for a moment, and holds what one of them holds.
    """
    if room_for(workers):
        return True, ""
    kept = kept_cores()
    if kind.gpu is not None or kept < kind.cores:
        return False, none_kept(kind, kept) if one_machine else ""
    taken = 0.0
    for pid in ServeReplicas().pids(workers):
        with suppress(psutil.Error):  # it has just ended
            taken = max(taken, psutil.Process(pid).memory_info().rss / 2**20)
    needed, free = taken + MORE_MIB, free_memory_mib()
    if free >= needed:
        return True, ""
    return False, (
        f"one more is not started first: it would need {needed:,.0f} MiB as the others do, and"
        f" {free:,.0f} MiB are free"
    )
