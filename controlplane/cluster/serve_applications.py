"""The Serve applications of modelless: deployed, and what Ray Serve says of them."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Container, Mapping
from typing import Any

from controlplane.cluster.patience import patience
from controlplane.cluster.start_reports import Starting, failure, is_up, lacks_room
from variants.errors import ClusterUnavailable

GATEWAY_APP = "modelless-gateway"


CONTROLLER_APP = "modelless-controller"


WORKER_APP = "modelless-worker-"
"""Followed by the device kind: one Serve application of workers for each kind."""


ANSWER_S = 5.0
"""How long Serve and its replicas may take to answer a question."""


START_POLL_S = 0.2


SLOW_S = 30.0
"""After so long somebody who waits for Serve's own process is told what it is."""


BEGIN_S = 180.0
"""How long Serve's own process may take to begin. On a busy machine that has been 20 s."""


def deploy(
    applications: Mapping[str, Any], logs: str, say: Callable[[str], None] = lambda _: None
) -> None:
    """Hand applications over to Serve, by name: what ``controlplane.app`` builds.

    Returns when Serve knows them; ``until_running`` waits for their replicas. For the main thread,
    which a handler of a signal may interrupt by raising. ``say`` is told when it takes long.

    Args:
        logs: where Ray's logs are, for the sentence of an error.

    Raises:
        ClusterUnavailable: Serve does not begin, or does not take them.
    """
    from ray import serve
    from ray.serve.api import RunTarget

    targets = [
        RunTarget(application, name, route_prefix=None, external_scaler_enabled=True)
        for name, application in applications.items()
    ]
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    slow = f"Ray has not started its first process within {SLOW_S:,g} s; it is waited for"
    try:
        with patience(BEGIN_S, SLOW_S, lambda: say(slow)):
            serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
            serve.run_many(targets, wait_for_applications_running=False)
    except TimeoutError as error:
        raise ClusterUnavailable(
            "Ray Serve could not start modelless: Ray has not started its first process within"
            f" {BEGIN_S:,g} s; `raylet.out` and the files `worker-*` say why, in {logs}"
        ) from error
    except Exception as error:
        raise ClusterUnavailable(f"Ray Serve could not start modelless: {error}") from error


def until_running(
    names: Collection[str],
    stopped: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Return when these applications run, or as soon as ``stopped()``.

    Workers for which no node has room are waited for only while there are none at all; ``say`` is
    told.

    Raises:
        ClusterUnavailable: Serve does not start them; the sentence is the replica's own.
    """
    said: set[str] = set()
    while not stopped():
        found = applications_now(names)
        if (why := failure(found)) is not None:
            raise ClusterUnavailable(f"Ray Serve could not start modelless: {why}")
        if len(found) == len(names) and is_up(found):
            return
        for name in set(lacks_room(found)) - said:
            said.add(name)
            say(
                f"{name}: not all replicas have begun within 30 s: no node has room for them,"
                " or the machine is slow; they start when that changes"
            )
        time.sleep(START_POLL_S)


def deploy_beside(name: str, application: Any) -> None:
    """Deploy one application, and leave all others as they are.

    Returns when Serve knows it; its replicas start later.

    Raises:
        ClusterUnavailable: Serve refuses it, or does not answer.
    """
    from ray import serve
    from ray.serve.api import RunTarget

    target = RunTarget(application, name, route_prefix=None, external_scaler_enabled=True)
    try:
        serve.run_many([target], wait_for_applications_running=False)
    except Exception as error:
        raise ClusterUnavailable(f"{name} cannot be deployed: {last_line(error)}") from error


def begin_deleting(name: str) -> None:
    """Have Serve end one application: its workers finish their queries.

    Raises:
        ClusterUnavailable: Serve does not answer.
    """
    from ray.serve.context import _get_global_client

    try:
        _get_global_client().delete_apps([name], blocking=False)
    except Exception as error:
        raise ClusterUnavailable(f"{name} cannot be ended: {last_line(error)}") from error


def applications_now(names: Container[str]) -> list[Starting]:
    """What Serve says of these applications.

    Raises:
        ClusterUnavailable: Serve's controller does not answer.
    """
    from ray import serve
    from ray.exceptions import RayError

    try:
        applications = serve.status().applications
    except (RayError, TimeoutError) as error:
        raise ClusterUnavailable(f"Ray Serve does not answer: {last_line(error)}") from error
    found = []
    for name, application in applications.items():
        if name in names:
            deployments = application.deployments.values()
            told = [one.message for one in deployments if one.message]
            running = [int(one.replica_states.get("RUNNING", 0)) for one in deployments]
            found.append(
                Starting(
                    name=name,
                    status=str(application.status.value),
                    message=" ".join(told) or application.message,
                    running=sum(running),
                )
            )
    return found


def gateway_nodes() -> list[str]:
    """Addresses of the nodes on which a gateway runs, as Ray knows them.

    Raises:
        ClusterUnavailable: Serve's controller does not answer.
    """
    from ray.exceptions import RayError
    from ray.serve.context import _get_global_client

    try:
        details = _get_global_client().get_serve_details()
    except (RayError, TimeoutError) as error:
        raise ClusterUnavailable(f"Ray Serve does not answer: {last_line(error)}") from error
    replicas = details["applications"][GATEWAY_APP]["deployments"]["gateway"]["replicas"]
    running = {one["node_ip"] for one in replicas if one["state"] == "RUNNING"}
    return sorted(running - {None})


async def serve_details() -> Mapping[str, Any]:
    """What Serve says of itself: its applications with their deployments and replicas.

    Raises:
        ClusterUnavailable: Serve's controller does not answer.
    """
    from ray.exceptions import RayError
    from ray.serve.context import _get_global_client
    from ray.serve.exceptions import RayServeException

    try:
        controller = _get_global_client()._controller
        async with asyncio.timeout(ANSWER_S):
            details: Mapping[str, Any] = await controller.get_serve_instance_details.remote()
    except (RayError, RayServeException, TimeoutError) as error:
        raise ClusterUnavailable(f"Ray Serve does not answer: {last_line(error)}") from error
    return details


def last_line(error: Exception) -> str:
    """What happened, without the remote traceback that Ray puts before it."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
