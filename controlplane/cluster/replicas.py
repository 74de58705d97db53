"""Replicas that are replaced one by one: what each is, and Serve's levers for it.

Serve's own rolling update knows no loaded variants: it stops an old replica as soon as a new one
runs. So an application is deployed under the version that it has: nothing is restarted by that, and
whatever Serve starts from then on starts with the new code and settings. Then one replica after
another is asked to leave.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.cluster.sent_settings import SentSettings
from controlplane.cluster.serve_applications import (
    ANSWER_S,
    begin_deleting,
    deploy_beside,
    last_line,
)
from variants.errors import ClusterUnavailable
from workers.process.release import generation

HEARD_S = 10.0
"""How long a handle may take to hear of its replicas."""
RUNS = "RUNNING"
LEFT = "health check failed"
"""Stands in what Serve says of a deployment of which a replica was asked to leave."""
GOES = ("STOPPING", "GRACEFULLY_STOPPING")
CHANGES = ("UPDATING", "RECOVERING")
"""It runs, and for a moment says nothing of itself: it takes in a configuration, as after each
``renew``, or Serve's controller is new and has not heard of it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The one deployment of an application, as it is to be."""

    application: str
    name: str
    built: Any
    """The application as this code and these settings make it."""

    @property
    def generation(self) -> str:
        """That of its replicas."""
        bound = self.built._bound_deployment
        return generation(*bound.init_args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """What Serve says of a deployment, and what its replicas say of themselves."""

    target: int
    generations: Mapping[str, str]
    """Of all replicas that run, by replica; empty where one cannot say it."""
    going: int
    """How many leave."""
    message: str
    """Serve's own, where something is wrong."""


class ServeReplicas:
    """Serve, as `modelless upgrade` uses it. Used in a process that has joined Ray."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}

    def look(self, deployment: Deployment) -> Replicas:
        """What runs of a deployment.

        Raises:
            ClusterUnavailable: Serve or a replica does not answer, or there is no such application.
        """
        from ray.exceptions import RayTaskError

        found = self._found(deployment)
        if any(one["state"] in CHANGES for one in found["replicas"]):
            # Left out it would not be replaced, and looked for as if it were missing.
            raise ClusterUnavailable(
                f"a replica of {deployment.application} takes in a configuration"
            )
        running = [one["replica_id"] for one in found["replicas"] if one["state"] == RUNS]
        answers = self._answers(deployment, "identity") if running else []
        said = {one["replica"]: one["generation"] for one in answers if isinstance(one, dict)}
        # One of a release that knows no such question answers with an error.
        refused = sum(isinstance(one, RayTaskError) for one in answers)
        if len(set(running) - said.keys()) > refused:
            raise ClusterUnavailable(f"not all replicas of {deployment.application} answer")
        going = sum(one["state"] in GOES for one in found["replicas"])
        return Replicas(
            target=found["target_num_replicas"],
            generations={replica: said.get(replica, "") for replica in running},
            going=going,
            message="" if LEFT in (found["message"] or "") else found["message"] or "",
        )

    def settings(self, gateways: Deployment) -> SentSettings | None:
        """The settings that a gateway started with; None where none can say it.

        Raises:
            ClusterUnavailable: none answers for some seconds.
        """
        until_s = time.monotonic() + HEARD_S
        while True:
            try:
                answers = self._answers(gateways, "settings_of_start")
                break
            except ClusterUnavailable:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.2)
        return next((one for one in answers if isinstance(one, SentSettings)), None)

    def renew(self, deployment: Deployment, mark: str) -> None:
        """Have Serve start replicas with the new code and settings from now on.

        None is restarted: the version stays, and what Ray gives to a replica.

        Args:
            mark: another one each time, or Serve sees no change.

        Raises:
            ClusterUnavailable: Serve refuses it, or does not answer.
        """
        info, found = self._info(deployment), self._found(deployment)
        bound = deployment.built._bound_deployment
        told = found["deployment_config"].get("user_config") or {}
        bound = bound.options(
            num_replicas=max(1, found["target_num_replicas"]),
            ray_actor_options=info.replica_config.ray_actor_options,
            user_config={**told, "renewed": mark},
        )
        bound._version = info.version
        deployment.built._bound_deployment = bound
        deploy_beside(deployment.application, deployment.built)

    def starts(self, deployment: Deployment) -> str:
        """The generation of what Serve would start now; empty where another build has said it in a
        way that this one does not read.

        Raises:
            ClusterUnavailable: Serve does not answer.
        """
        told = self._info(deployment).replica_config
        try:
            return generation(*told.init_args)
        except (ImportError, AttributeError, TypeError):
            return ""

    def leave(self, deployment: Deployment, replica: str) -> bool:
        """Ask a replica to leave; Serve starts another one in its place.

        Returns whether it has heard: one that takes in a configuration does not for a moment.

        Raises:
            ClusterUnavailable: none answers.
        """
        return any(one is True for one in self._answers(deployment, "leave", replica))

    def pids(self, deployment: Deployment) -> list[int]:
        """The processes of all replicas that run; on a cluster of other machines, too.

        Raises:
            ClusterUnavailable: Serve does not answer.
        """
        found = self._found(deployment)["replicas"]
        return [one["pid"] for one in found if one["state"] == RUNS and one["pid"]]

    def end(self, deployment: Deployment) -> None:
        """Have Serve end the application of a deployment.

        Raises:
            ClusterUnavailable: Serve does not answer.
        """
        begin_deleting(deployment.application)

    def _info(self, deployment: Deployment) -> Any:
        """What Serve keeps of a deployment."""
        from ray.serve.context import _get_global_client

        try:
            client = _get_global_client()
            return client.get_deployment_info(deployment.name, deployment.application)[0]
        except Exception as error:
            raise ClusterUnavailable(
                f"{deployment.application} cannot be looked at: {last_line(error)}"
            ) from error

    def _found(self, deployment: Deployment) -> Mapping[str, Any]:
        import ray
        from ray.serve.context import _get_global_client

        try:
            controller = _get_global_client()._controller
            details = ray.get(controller.get_serve_instance_details.remote(), timeout=ANSWER_S)
            found: Mapping[str, Any] = details["applications"][deployment.application][
                "deployments"
            ][deployment.name]
        except KeyError as error:
            raise ClusterUnavailable(f"{deployment.application} does not run") from error
        except Exception as error:
            raise ClusterUnavailable(f"Ray Serve does not answer: {last_line(error)}") from error
        return found

    def _answers(self, deployment: Deployment, question: str, *arguments: str) -> list[Any]:
        """What all replicas answer, or the error of one that does not."""
        from ray import serve

        try:
            handle = self._handles.get(deployment.application)
            if handle is None:
                handle = serve.get_deployment_handle(deployment.name, deployment.application)
                # Actor calls: the replicas' own gRPC servers are on loopback.
                handle = handle.options(_by_reference=True)
                self._handles[deployment.application] = handle
            found: list[Any] = handle.broadcast(question, *arguments).results(
                timeout_s=ANSWER_S, return_exceptions=True
            )
        except Exception as error:  # the handle has not heard of any yet, or time is over
            raise ClusterUnavailable(
                f"{deployment.application} does not answer: {last_line(error)}"
            ) from error
        return found


def room_for(deployment: Deployment) -> bool:
    """Whether some node has free what Ray gives to one more replica."""
    import ray
    from ray._private.state import available_resources_per_node

    if not ray.is_initialized():
        return False
    given = dict(deployment.built._bound_deployment.ray_actor_options)
    wanted = {
        "CPU": float(given.get("num_cpus") or 0),
        "GPU": float(given.get("num_gpus") or 0),
        **(given.get("resources") or {}),
    }
    return any(
        all(free.get(name, 0.0) >= amount for name, amount in wanted.items())
        for free in available_resources_per_node().values()
    )
