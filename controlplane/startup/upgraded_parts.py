"""What `modelless upgrade` replaces: workers of each kind, gateways, the control loop."""

from collections.abc import Callable

from controlplane.cluster.replicas import Deployment, room_for
from controlplane.cluster.serve_applications import (
    CONTROLLER_APP,
    GATEWAY_APP,
    WORKER_APP,
    applications_now,
)
from controlplane.settings import Settings
from controlplane.startup.upgrade import Part


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
        found.append(
            Part(
                words=f"workers {kind.name}",
                deployment=workers,
                extra=str(kind.name),
                # How many run of an elastic kind is the plan's to say: it would end one more.
                room=kind.least is None and room_for(workers),
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
