"""The ASGI application: the control API, the metadata of protocol v2, metrics.

The inference routes stand here, too: for OpenAPI, and for the rare request that cannot take the
short way because it waits behind another one on its connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.gateway.canaries.feedback import Feedback
from controlplane.gateway.canaries.feedback_routes import add_feedback_route
from controlplane.gateway.counting.client_counters import ClientCounters, OldKeyUse
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.http.access import Access
from controlplane.gateway.http.guarded import AsgiApp, Guarded
from controlplane.gateway.http.query_routes import add_query_routes
from controlplane.gateway.http.taken_up import TakenUp
from controlplane.gateway.open_inference.protocol_views import ProtocolViews
from controlplane.gateway.open_inference.repository import Repository
from controlplane.gateway.open_inference.routes import add_protocol_routes
from controlplane.gateway.protection.compression import Inflater
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.reports.metrics import GatewayCollector
from controlplane.live_state import LiveState
from controlplane.timestamps import timestamp_of
from controlplane.views.service_status import slo_report
from planner.feedback.by_class import ByClass, Said
from variants.core_time import CoreTime
from variants.errors import StateUnavailable
from workers.types import WorkerStatus


class LiveReads:
    """The live state as the control API reads it; workers come from this gateway's connections."""

    def __init__(
        self,
        live: LiveState,
        statuses: Callable[[], list[Mapping[str, Any]]],
        total: Callable[[], Awaitable[Counters]],
        access: Access,
        own: Callable[[], Mapping[str, Mapping[str, Any]]],
        whole: Callable[[], Sequence[WorkerStatus]] = list,
        unload: Callable[[str, str, str], Awaitable[None]] | None = None,
        drain: Callable[[str], Awaitable[None]] | None = None,
        core_times: Callable[[], Awaitable[Sequence[CoreTime]]] | None = None,
    ) -> None:
        """
        Args:
            statuses: what each connected worker last said, and what is known of it.
            own: how queries ended at this gateway until now, by its name: in the live state it is
                up to a second behind.
            total: what all gateways that share the port have counted.
            access: knows the keys of clients.
            whole: what each connected worker last said, alone.
            unload: unloads a variant from a worker.
            drain: has a worker leave.
            core_times: how the time of cores is used, by each gateway and worker.
        """
        self._core_times = core_times
        self._whole = whole
        self._unload = unload
        self._drain = drain
        self._live = live
        self._statuses = statuses
        self._total = total
        self._access = access
        self._own = own

    async def worker_status(self) -> list[Mapping[str, Any]]:
        return self._statuses()

    async def whole_worker_status(self) -> Sequence[WorkerStatus]:
        return self._whole()

    async def unload(self, worker: str, task: str, variant: str, /) -> None:
        assert self._unload is not None
        await self._unload(worker, task, variant)

    async def drain(self, worker: str, /) -> None:
        assert self._drain is not None
        await self._drain(worker)

    async def operation(self, id: str, /) -> Mapping[str, Any] | None:
        return await self._live.operation(id)

    async def all_operations(self) -> Mapping[str, Mapping[str, Any]]:
        return await self._live.all_operations()

    async def put_operation(self, id: str, body: Mapping[str, Any], /) -> None:
        await self._live.put_operation(id, body)

    async def nodes(self) -> Mapping[str, Any] | None:
        return await self._live.nodes()

    def refused(self) -> str:
        return self._live.refused

    async def core_times(self) -> Sequence[CoreTime]:
        return () if self._core_times is None else await self._core_times()

    async def controller(self) -> Mapping[str, Any] | None:
        return await self._live.controller()

    async def clients(self) -> Sequence[Mapping[str, Any]]:
        """What was asked by each key that there is, and without one; the empty list without keys.

        Counters keep those of keys that are taken back, as metrics must not shrink.
        """
        weights = {client.name: client.weight for client in self._access.clients}
        total = (await self._total()).clients
        elsewhere = await self._elsewhere() if self._access.clients.old_keys else []
        if weights and "" in total:
            weights[""] = 1.0
        rows = []
        for name, weight in sorted(weights.items()):
            counted = total.get(name, ClientCounters())
            digest = self._access.clients.old_keys.get(name, "")
            use = everywhere(digest, counted.old_keys.uses.get(digest), elsewhere)
            rows.append(
                {
                    "name": name,
                    "weight": weight,
                    "asked": counted.answered + counted.refused,
                    "answered": counted.answered,
                    "refused": counted.refused,
                    "old_key": _told(use),
                }
            )
        return rows

    async def old_token(self) -> Mapping[str, Any] | None:
        digest = self._access.clients.old_token
        if not digest:
            return None
        here = (await self._total()).old_tokens.uses.get(digest)
        return _told(everywhere(digest, here, await self._elsewhere()))

    async def _elsewhere(self) -> list[Mapping[str, Any]]:
        """How older keys are used, as each gateway of all machines says it
        (``DemandReport.make``)."""
        with suppress(StateUnavailable):
            reports = (await self._live.gateways()).values()
            return [report["old_keys"] for report in reports if "old_keys" in report]
        return []

    async def machines(self) -> Mapping[str, Any] | None:
        return await self._live.machines()

    async def feedback(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        total = await self._total()
        return {
            name: {
                variant: (counted.right, counted.wrong)
                for variant, counted in task.variants.items()
                if counted.right or counted.wrong
            }
            for name, task in total.tasks.items()
        }

    async def feedback_by_class(self) -> Mapping[str, Mapping[str, ByClass]]:
        total = await self._total()
        return {
            name: {
                variant: {number: Said(*said) for number, said in counted.classes.items()}
                for variant, counted in task.variants.items()
                if counted.classes
            }
            for name, task in total.tasks.items()
        }

    async def canaries(self) -> Mapping[str, Any]:
        return await self._live.canaries()

    async def put_notice(self, notice: Mapping[str, Any], /) -> None:
        await self._live.put_notice(notice)

    async def history(self) -> Sequence[Mapping[str, Any]]:
        return await self._live.history()

    async def slo_report(self) -> Mapping[str, Any]:
        """How queries ended over all gateways, not only those of this machine."""
        return slo_report({**await self._live.gateways(), **self._own()}.values())


def everywhere(
    digest: str, here: OldKeyUse | None, told: Sequence[Mapping[str, Any]]
) -> OldKeyUse | None:
    """How an older key is used, by all gateways together.

    Args:
        here: by those of this machine, which are among those that tell.
        told: by digest, the fields of ``OldKeyUse`` as each gateway tells them.
    """
    uses = [OldKeyUse(*one[digest]) for one in told if digest in one]
    found = here
    for use in uses:
        found = use if found is None else found.and_of(use)
    if here is None or found is None:
        return found
    counted = max(here.requests, sum(use.requests for use in uses))
    return found._replace(requests=counted)


def _told(use: OldKeyUse | None) -> dict[str, Any] | None:
    """As ``controlplane.api.clients.OldKey`` has it."""
    if use is None:
        return None
    return {
        "watched_since": timestamp_of(use.since_s),
        "used_at": timestamp_of(use.last_s) if use.last_s else None,
        "requests": use.requests,
    }


def build_asgi(
    context: ApiContext,
    path: QueryPath,
    views: ProtocolViews,
    repository: Repository,
    access: Access,
    collector: Callable[[], Awaitable[GatewayCollector]],
    max_body: int,
    inflater: Inflater,
    feedback: Feedback,
    everywhere: Callable[[], Awaitable[None]],
) -> AsgiApp:
    """The ASGI application for all requests that do not take the short way.

    Args:
        context: what the control API stands on.
        path: answers queries that come here.
        views: what the protocol says of tasks and variants.
        repository: loads what is asked for by name.
        max_body: the longest body of a request, in bytes.
        inflater: unpacks those that come compressed.
        feedback: takes in what clients say of answers.
        everywhere: returns when all gateways have looked at what a request has changed.
    """
    api = build_api(context)
    add_metrics_route(api, collector)
    add_protocol_routes(api, views, repository)
    add_query_routes(api, path, max_body, inflater, access, context.cores)
    add_feedback_route(api, feedback)
    return Guarded(TakenUp(api, everywhere), access, max_body)


def add_metrics_route(api: FastAPI, collector: Callable[[], Awaitable[GatewayCollector]]) -> None:
    one_at_a_time = asyncio.Lock()

    @api.get(
        "/metrics",
        tags=["running"],
        summary="Metrics for Prometheus",
        response_class=PlainTextResponse,
    )
    async def metrics() -> Response:
        registry = CollectorRegistry()
        # In a thread, because of a thousand tasks it takes longer than a query may wait.
        async with one_at_a_time:
            registry.register(await collector())
            text = await asyncio.to_thread(generate_latest, registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)
