"""The Serve applications of an installation: a gateway, a control loop, workers of each kind."""

from collections.abc import Container
from typing import Any

from controlplane.cluster.serve_applications import (
    CONTROLLER_APP,
    GATEWAY_APP,
    WORKER_APP,
    applications_now,
)
from controlplane.cluster.start_reports import complaints
from controlplane.settings import Settings
from variants.errors import ClusterUnavailable


def applications(settings: Settings, absent: Container[str] = ()) -> dict[str, Any]:
    """The Serve applications of this installation, by name.

    Args:
        absent: kinds that no node has yet. These, and kinds that the first layout does not have,
            are left out: the control loop deploys them when a plan asks for workers of theirs
            (``controlplane.cluster.kind_applications``).
    """
    from controlplane import app

    workers = {
        WORKER_APP + name: app.worker({"device_kind": name, "replicas": count})
        for name, count in settings.begins_with.items()
        if count and name not in absent
    }
    return {**workers, GATEWAY_APP: app.gateway({}), CONTROLLER_APP: app.controller({})}


def worker_names(settings: Settings) -> list[str]:
    """The applications of the workers, one for each device kind."""
    return [WORKER_APP + kind.name for kind in settings.kinds]


def complaints_of(settings: Settings) -> str:
    """What Ray Serve says of applications that do not run, as part of a sentence: each with a space
    before it and a semicolon behind."""
    try:
        found = complaints(applications_now({*worker_names(settings), GATEWAY_APP, CONTROLLER_APP}))
    except ClusterUnavailable as error:
        found = [error.message]
    return "".join(f" {one};" for one in found)
