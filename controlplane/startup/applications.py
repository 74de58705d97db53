"""The Serve applications of an installation: a gateway, a control loop, workers of each kind."""

from collections.abc import Container
from typing import Any

from controlplane.cluster.serve_applications import CONTROLLER_APP, GATEWAY_APP, WORKER_APP
from controlplane.settings import Settings


def applications(
    settings: Settings, absent: Container[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The Serve applications of this installation, by name, and those that are to have no replica.

    Args:
        absent: kinds that no node has yet. Of these, and of kinds that the first layout does not
            have, Serve deploys one worker, the least that it takes.
    """
    from controlplane import app

    begins = {name: 0 if name in absent else count for name, count in settings.begins_with.items()}
    workers = {
        WORKER_APP + kind.name: app.worker(
            {"device_kind": kind.name, "replicas": max(1, begins[kind.name])}
        )
        for kind in settings.kinds
    }
    empty = [WORKER_APP + name for name, count in begins.items() if not count]
    made = {**workers, GATEWAY_APP: app.gateway({}), CONTROLLER_APP: app.controller({})}
    return made, empty


def worker_names(settings: Settings) -> list[str]:
    """The applications of the workers, one for each device kind."""
    return [WORKER_APP + kind.name for kind in settings.kinds]
