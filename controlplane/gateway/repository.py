"""Repository: the model repository extension, as far as a plan leaves something to ask for.

What is loaded where belongs to the plan. So a load is what a query would cause that waits for it,
and an unload is refused: the next plan would undo it.
"""

import asyncio
from random import getrandbits

from controlplane.gateway.on_demand_loads import LOAD_TIMEOUT_S
from controlplane.gateway.protocol_views import ProtocolViews
from controlplane.gateway.query.query_errors import refusal_error
from controlplane.gateway.query.query_path import QueryPath
from planner.types import Query, Refusal
from variants.errors import Conflict, DeadlineExceeded
from variants.types import TaskName, VariantName

TOLD_S = 5.0
"""How long a worker's report that it holds a variant is waited for; it comes once a second."""
LOOK_S = 0.01


class Repository:
    """Loads what is asked for by name."""

    def __init__(self, views: ProtocolViews, path: QueryPath) -> None:
        self._views = views
        self._path = path

    async def load(self, name: str, version: str = "") -> None:
        """Return once a worker holds the variant, or else one that queries may be given unasked.

        Raises:
            ModellessError: there is none, it cannot be loaded, or no worker has room.
        """
        if self._views.task_ready(name, version):
            return
        path, task = self._path, TaskName(name)
        now_ms = path.clock_ms()
        query = Query(
            task=task,
            rows=1,
            received_ms=now_ms,
            latency_ms=LOAD_TIMEOUT_S * 1000,
            variant=VariantName(self._views.variant_of(task, version)) if version else None,
            draw=getrandbits(32),
        )
        found = path.choose(query, now_ms)
        if isinstance(found, Refusal):
            raise refusal_error(found)
        if found.cold:
            slack_ms = max(0.0, query.latency_ms - found.candidate.load_ms)
            await path.load(found.candidate, found.worker.id, slack_ms, "a load by name")
        for _ in range(round(TOLD_S / LOOK_S)):
            if self._views.task_ready(name, version):
                return
            await asyncio.sleep(LOOK_S)
        raise DeadlineExceeded("It was loaded, and its worker has not said so yet.")

    def unload(self, name: str, version: str = "") -> None:
        """Always refused.

        Raises:
            TaskNotFound: there is no such task.
            NotFound: it has no such variant.
            Conflict: there is.
        """
        self._views.metadata(name, version)
        raise Conflict(
            "what is loaded is decided by the plan, which would load it again; to take a model"
            " out of service, retire its version"
        )
