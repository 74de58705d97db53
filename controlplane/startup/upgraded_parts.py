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
from controlplane.settings import Settings
from controlplane.slices import Kind
from controlplane.startup.upgrade import Part
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
    from controlplane.cluster.sent_settings import send

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
            room, lacks = _room(kind, workers)
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
    return [
        *found,
        Part(words="gateways", deployment=gateways(), extra="gateways"),
        Part(
            words="control loop",
            deployment=loop,
            ready=lambda replica: leader().endswith(f" {replica}"),
        ),
    ]


def _room(kind: Kind, workers: Deployment) -> tuple[bool, str]:
    """Whether there is room for one more worker; if only memory is short, in words.

    On one machine it shares the cores of the others for a moment, and holds what one of them holds.
    """
    if room_for(workers):
        return True, ""
    if kind.gpu is not None or kept_cores() < kind.cores:
        return False, ""
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
