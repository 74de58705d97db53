"""The cluster adapter: every call that the control plane makes to Ray stands here."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from controlplane.cluster.kinds.node import Node
from controlplane.cluster.nodes import NodeLook
from controlplane.cluster.one_machine.spare_room import give_up, keep
from controlplane.cluster.serve_applications import (
    ANSWER_S,
    GATEWAY_APP,
    WORKER_APP,
    last_line,
    serve_details,
)
from controlplane.cluster.start_reports import REFUSED, last_words
from variants.errors import ClusterUnavailable

log = logging.getLogger(__name__)


FAILURES_OF_A_HANDLE = 3
"""In a row: then it is made anew. A fresh one needs a moment to hear of its replicas."""


STARTUP_FAILED = "REPLICA_STARTUP_FAILED"
"""What has put a deployment of Serve into its state."""
ANSWERING = ("RUNNING", "UPDATING", "PENDING_MIGRATION")
"""States of replicas that a handle knows and can ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAddress:
    """Where a running worker is reached, as the worker itself says."""

    id: str
    address: str
    device_kind: str


def worker_handle(kind: str) -> Any:
    """Serve's handle of the workers of a kind."""
    from ray import serve

    handle = serve.get_deployment_handle("worker", WORKER_APP + kind)
    # Actor calls, whatever the environment says: the replicas' own gRPC servers are on loopback.
    return handle.options(_by_reference=True)


class Later(Protocol):
    """Kinds whose workers are deployed when some are wanted for the first time."""

    def includes(self, kind: str) -> bool: ...
    async def deploy(self, kind: str, count: int) -> None: ...


class ServeCluster:
    """The running cluster as the control loop sees it. Used inside a Serve replica."""

    def __init__(
        self,
        handle_of: Callable[[str], Any] = worker_handle,
        details: Callable[[], Awaitable[Mapping[str, Any]]] = serve_details,
        later: Later | None = None,
    ) -> None:
        self._handle_of = handle_of
        self._details = details
        self._later = later
        self._undeployed: frozenset[str] = frozenset()
        """Kinds that are deployed later, and were not there at the last look."""
        self._deployed_since: set[str] = set()
        """Kinds that were deployed since that look began."""
        self._handles: dict[str, Any] = {}
        self._failures: dict[str, int] = {}
        """How often each kind could not be listed, in a row."""
        self._described: dict[str, list[dict[str, str]]] = {}
        self._unheard: dict[str, list[dict[str, str]]] = {}
        """Those that were known, where not all that failed to answer can have been asked."""
        self._nodes = NodeLook()

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        """All workers of these kinds that run now; what the cluster reports is the truth.

        A replica that has just died is left out: it shows up as missing until Serve replaces it.
        While some should answer and do not, the answer is what was last known of their kind: others
        still run.

        Raises:
            ClusterUnavailable: Serve does not answer for a kind of which nothing was ever known.
        """
        found: list[WorkerAddress] = []
        for kind in kinds:
            if kind in self._undeployed:
                continue
            found += [WorkerAddress(**answer) for answer in await self._describe(kind)]
        return found

    async def _describe(self, kind: str) -> list[dict[str, str]]:
        from ray.exceptions import RayActorError
        from ray.serve.exceptions import RayServeException

        try:
            handle = self._handles.get(kind)
            if handle is None:
                handle = self._handles[kind] = self._handle_of(kind)
            answers = await handle.broadcast("describe").results_async(
                timeout_s=ANSWER_S, return_exceptions=True
            )
        except (RayActorError, RayServeException, TimeoutError) as error:
            return await self._without_answer(kind, error)
        self._failures.pop(kind, None)
        found = [answer for answer in answers if isinstance(answer, dict) and answer["address"]]
        heard = {answer["id"] for answer in found}
        known = (*self._described.get(kind, ()), *self._unheard.pop(kind, ()))
        missing = [one for one in known if one["id"] not in heard]
        failed = sum(isinstance(answer, Exception) for answer in answers)
        if not failed:
            found += await self._not_asked(kind, missing)
        elif len(missing) > failed:  # which of them failed, the next look knows
            self._unheard[kind] = missing
        self._described[kind] = found
        return found

    async def _not_asked(self, kind: str, missing: list[dict[str, str]]) -> list[dict[str, str]]:
        """Those of the workers that a handle has not asked which run.

        A handle does not know a replica while that takes in a configuration, which it does when its
        application is deployed again.
        """
        if not missing:
            return []
        try:
            there = names_of_workers(await self._details(), kind)
        except ClusterUnavailable:
            return missing  # they stay as known
        return [one for one in missing if one["id"] in there]

    async def _without_answer(self, kind: str, error: Exception) -> list[dict[str, str]]:
        """The workers of a kind that a handle could not ask.

        A handle refuses a call when there is no replica, and also while it has not heard of those
        there are. Only Serve itself knows which of the two it is.
        """
        failures = self._failures[kind] = self._failures.get(kind, 0) + 1
        if failures % FAILURES_OF_A_HANDLE == 0 and (handle := self._handles.pop(kind, None)):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(handle.shutdown_async(), ANSWER_S)
        try:
            running = _replicas(await self._details(), kind)
        except ClusterUnavailable as unknown:
            error, running = unknown, 1
        if not running:
            self._failures.pop(kind, None)
            self._unheard.pop(kind, None)
            self._described[kind] = []
        if kind in self._described:
            if running and failures == 1:
                log.warning("workers of %s cannot be listed, they stay as known: %s", kind, error)
            return self._described[kind]
        raise ClusterUnavailable(f"workers of {kind} cannot be listed: {error}") from error

    async def targets(self, kinds: Iterable[str]) -> dict[str, int]:
        """How many workers of each kind Serve was last told to run: none of one that is deployed
        later. A kind that is not deployed, and not to be, is left out.

        Raises:
            ClusterUnavailable: Serve's controller does not answer.
        """
        self._deployed_since.clear()
        details = await self._details()
        found: dict[str, int] = {}
        undeployed = set()
        for kind in kinds:
            if (deployment := _deployment(details, kind)) is not None:
                found[kind] = deployment["target_num_replicas"]
            elif WORKER_APP + kind not in details["applications"] and self._deploys(kind):
                found[kind] = 0
                undeployed.add(kind)
        self._undeployed = frozenset(undeployed - self._deployed_since)
        return found

    async def failed_starts(self, kinds: Iterable[str]) -> dict[str, str]:
        """Of these kinds those whose workers do not start, with the reason; they are tried again.

        Raises:
            ClusterUnavailable: Serve's controller does not answer.
        """
        return failed_starts(await self._details(), kinds)

    def _deploys(self, kind: str) -> bool:
        return self._later is not None and self._later.includes(kind)

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes that may have workers. One that is new is asked what it is, for up to 20 s.

        Raises:
            ClusterUnavailable: Ray does not answer.
        """
        return await asyncio.to_thread(self._nodes.look)

    async def scale(self, kind: str, count: int) -> None:
        """Tell Ray Serve how many workers of a kind to run: its lever for an outside planner.

        Raises:
            ClusterUnavailable: Serve's controller refused or did not answer.
        """
        if self._later is not None and self._later.includes(kind):
            # Looked at anew: a call that was given up may have deployed it since, and what is
            # deployed twice starts twice; or `modelless upgrade` has ended it.
            if WORKER_APP + kind not in (await self._details())["applications"]:
                if not count:  # it was ended since
                    self._undeployed |= {kind}
                    return
                await self._later.deploy(kind, count)
                self._undeployed -= {kind}
                self._deployed_since.add(kind)
                return
            self._undeployed -= {kind}
        await _scale(kind, "worker", WORKER_APP + kind, count)

    async def end_worker(self, worker: str, kind: str) -> None:
        """End the process of a worker, on whichever node; Ray Serve starts another one.

        Ray asks it to end itself first, and its node ends it five seconds later. One that is gone
        already is no error.

        Raises:
            ClusterUnavailable: Ray does not answer.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                await asyncio.to_thread(_end_worker, worker, kind)
        except TimeoutError as error:
            raise ClusterUnavailable("Ray's control store does not answer") from error

    async def scale_gateways(self, count: int) -> None:
        """Tell Ray Serve how many gateways to run.

        Raises:
            ClusterUnavailable: Serve's controller refused or did not answer.
        """
        await _scale("gateways", "gateway", GATEWAY_APP, count)

    async def lend_room(self, cores: int, given: int) -> None:
        """Keep so many cores for one more worker; with 0 one may have what was kept.

        Args:
            given: what workers may have in all.

        Raises:
            ClusterUnavailable: Ray does not answer.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                await asyncio.to_thread(*((keep, cores, given) if cores else (give_up,)))
        except TimeoutError as error:
            raise ClusterUnavailable("Ray's control store does not answer") from error


def _end_worker(worker: str, kind: str) -> None:
    """End a worker as the actor that it is to Ray."""
    import ray
    from ray.exceptions import RayError
    from ray.serve._private.common import DeploymentID, ReplicaID
    from ray.serve._private.constants import SERVE_NAMESPACE

    deployment = DeploymentID(name="worker", app_name=WORKER_APP + kind)
    replica = ReplicaID(unique_id=worker.removeprefix(f"{kind}-"), deployment_id=deployment)
    try:
        actor = ray.get_actor(replica.to_full_id_str(), namespace=SERVE_NAMESPACE)
    except ValueError:  # there is none of that name any more
        return
    except RayError as error:
        raise ClusterUnavailable(f"worker {worker} cannot be ended: {last_line(error)}") from error
    ray.kill(actor)


async def _scale(what: str, deployment: str, application: str, count: int) -> None:
    from ray.exceptions import RayError
    from ray.serve._private.common import DeploymentID
    from ray.serve.context import _get_global_client
    from ray.serve.exceptions import RayServeException

    try:
        # What POST /api/v1/applications/{app}/deployments/{d}/scale calls; that route needs
        # Ray's dashboard, which a single machine runs without.
        controller = _get_global_client()._controller
        named = DeploymentID(name=deployment, app_name=application)
        async with asyncio.timeout(ANSWER_S):
            await controller.update_deployment_replicas.remote(named, count)
    except (RayError, RayServeException, TimeoutError) as error:
        raise ClusterUnavailable(
            f"{what} cannot be scaled to {count}: {last_line(error)}"
        ) from error


def _deployment(details: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """What Serve says of the workers of a kind, if they are deployed."""
    application = details["applications"].get(WORKER_APP + kind)
    found: Mapping[str, Any] | None = application and application["deployments"].get("worker")
    return found


def _replicas(details: Mapping[str, Any], kind: str) -> int:
    """How many replicas of a kind have started and are not leaving."""
    deployment = _deployment(details, kind)
    replicas = deployment["replicas"] if deployment is not None else ()
    return sum(replica["state"] in ANSWERING for replica in replicas)


def failed_starts(details: Mapping[str, Any], kinds: Iterable[str]) -> dict[str, str]:
    """Kinds of which Serve has tried as often to start a worker as it takes to call that failed, or
    one refused to start, which trying again cannot help; with what it says of it.

    One that was lost, and is started again, is none of these.
    """
    found = {}
    for kind in kinds:
        deployment = _deployment(details, kind) or {}
        message = str(deployment.get("message") or "")
        if deployment.get("status_trigger") == STARTUP_FAILED or REFUSED in message:
            found[kind] = last_words(message)
    return found


def names_of_workers(details: Mapping[str, Any], kind: str) -> set[str]:
    """The workers of a kind that have started and are not leaving."""
    deployment = _deployment(details, kind)
    replicas = deployment["replicas"] if deployment is not None else ()
    return {f"{kind}-{one['replica_id']}" for one in replicas if one["state"] in ANSWERING}


def nodes_of_workers(details: Mapping[str, Any], kinds: Iterable[str]) -> dict[str, str]:
    """Ray's id of the node that each worker of these kinds runs on, by worker."""
    return {
        f"{kind}-{replica['replica_id']}": replica["node_id"]
        for kind in kinds
        if (deployment := _deployment(details, kind)) is not None
        for replica in deployment["replicas"]
        if replica["state"] in ANSWERING and replica["node_id"]
    }
