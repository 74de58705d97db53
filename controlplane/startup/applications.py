"""The Serve applications of an installation: a gateway, a control loop, workers of each kind."""

from typing import Any

from controlplane.cluster.serve_applications import CONTROLLER_APP, GATEWAY_APP, WORKER_APP
from controlplane.settings import Settings


def applications(settings: Settings) -> dict[str, Any]:
    """The Serve applications of this installation, by name."""
    from controlplane import app

    kinds = [kind.name for kind in settings.kinds]
    workers = {WORKER_APP + name: app.worker({"device_kind": name}) for name in kinds}
    return {**workers, GATEWAY_APP: app.gateway({}), CONTROLLER_APP: app.controller({})}


def worker_names(settings: Settings) -> list[str]:
    """The applications of the workers, one for each device kind."""
    return [WORKER_APP + kind.name for kind in settings.kinds]
