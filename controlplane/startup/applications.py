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
        absent: kinds that no node has yet. Serve deploys one worker of each, the least that it
            takes.
    """
    from controlplane import app

    workers = {
        WORKER_APP + kind.name: app.worker(
            {"device_kind": kind.name} | ({"replicas": 1} if kind.name in absent else {})
        )
        for kind in settings.kinds
    }
    empty = [WORKER_APP + kind.name for kind in settings.kinds if kind.name in absent]
    made = {**workers, GATEWAY_APP: app.gateway({}), CONTROLLER_APP: app.controller({})}
    return made, empty


def worker_names(settings: Settings) -> list[str]:
    """The applications of the workers, one for each device kind."""
    return [WORKER_APP + kind.name for kind in settings.kinds]
