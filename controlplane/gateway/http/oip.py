"""Open Inference Protocol v2: health, metadata, repository index. Inference has its own path."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from controlplane.gateway.knowledge import Knowledge
from controlplane.gateway.metrics import Counters
from controlplane.gateway.query.replies import V2_NAMES
from variants.errors import NotFound, TaskNotFound
from variants.types import Stage, Task, TaskName, TensorSpec

EXTENSIONS = ["binary_tensor_data", "model_repository", "statistics"]


def add_protocol_routes(
    api: FastAPI, known: Knowledge, counters: Counters, is_ready: Callable[[], bool]
) -> None:
    """Add the protocol's read-only routes to the application.

    Args:
        known: what the gateway knows of tasks, variants and workers.
        counters: what the gateway has answered since it started.
        is_ready: whether the gateway takes requests now.
    """
    _health(api, known, is_ready)
    _metadata(api, known)
    _statistics(api, known, counters)


def _health(api: FastAPI, known: Knowledge, is_ready: Callable[[], bool]) -> None:
    tags: list[Any] = ["protocol v2"]

    @api.get("/v2/health/live", tags=tags, summary="Alive")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @api.get("/v2/health/ready", tags=tags, summary="Ready to take requests")
    async def ready() -> JSONResponse:
        """Ready as soon as the catalog was read, whatever is in it; tasks have their own."""
        state = is_ready()
        return JSONResponse({"ready": state}, 200 if state else 503)

    @api.get("/v2/models/{task}/ready", tags=tags, summary="Task ready")
    async def task_ready(task: str) -> JSONResponse:
        """Ready as soon as some worker holds a variant that queries may be given unasked."""
        found = _task(known, task)
        live = _variants(known, found, Stage.LIVE)
        return _readiness(found.name, not known.workers.ready(found.name).isdisjoint(live))

    @api.get("/v2/models/{task}/versions/{variant}/ready", tags=tags, summary="Variant ready")
    async def variant_ready(task: str, variant: str) -> JSONResponse:
        found = _task(known, task)
        _variant(known, found, variant)
        return _readiness(found.name, variant in known.workers.ready(found.name))


def _metadata(api: FastAPI, known: Knowledge) -> None:
    tags: list[Any] = ["protocol v2"]

    @api.get("/v2", tags=tags, summary="Server metadata")
    async def server() -> dict[str, Any]:
        from importlib.metadata import version

        return {"name": "modelless", "version": version("modelless"), "extensions": EXTENSIONS}

    @api.get("/v2/models/{task}", tags=tags, summary="Task metadata")
    async def task_metadata(task: str) -> dict[str, Any]:
        return _describe(known, _task(known, task))

    @api.get("/v2/models/{task}/versions/{variant}", tags=tags, summary="Variant metadata")
    async def variant_metadata(task: str, variant: str) -> dict[str, Any]:
        found = _task(known, task)
        _variant(known, found, variant)
        return _describe(known, found)

    @api.post("/v2/repository/index", tags=tags, summary="Repository index")
    async def index() -> list[dict[str, Any]]:
        """The variants of every task, and which of them are loaded."""
        rows = []
        for task in known.tasks.values():
            ready = known.workers.ready(task.name)
            for variant in _variants(known, task):
                state = "READY" if variant in ready else "UNAVAILABLE"
                reason = "" if variant in ready else "not loaded; loaded when a query needs it"
                rows.append(
                    {"name": task.name, "version": variant, "state": state, "reason": reason}
                )
        return rows


def _statistics(api: FastAPI, known: Knowledge, counters: Counters) -> None:
    tags: list[Any] = ["protocol v2"]

    @api.get("/v2/models/{task}/stats", tags=tags, summary="Statistics of a task")
    async def task_statistics(task: str) -> dict[str, Any]:
        """What this gateway has answered since it started, by variant; times in nanoseconds."""
        return {"model_stats": _counted(known, counters, _task(known, task))}

    @api.get(
        "/v2/models/{task}/versions/{variant}/stats", tags=tags, summary="Statistics of a variant"
    )
    async def variant_statistics(task: str, variant: str) -> dict[str, Any]:
        found = _task(known, task)
        _variant(known, found, variant)
        rows = [row for row in _counted(known, counters, found) if row["version"] == variant]
        return {"model_stats": rows}


def _counted(known: Knowledge, counters: Counters, task: Task) -> list[dict[str, Any]]:
    counted_here = counters.tasks.get(task.name)
    rows = []
    for variant in _variants(known, task):
        counted = counted_here.variants.get(variant) if counted_here else None
        answered = counted.met + counted.missed if counted else 0
        queue_ns = counted.queue_us * 1_000 if counted else 0
        run_ns = counted.run_us * 1_000 if counted else 0
        rows.append(
            {
                "name": task.name,
                "version": variant,
                "inference_count": counted.rows if counted else 0,
                "inference_stats": {
                    "success": {"count": answered, "ns": queue_ns + run_ns},
                    "queue": {"count": answered, "ns": queue_ns},
                    "compute_infer": {"count": answered, "ns": run_ns},
                },
            }
        )
    return rows


def _readiness(name: str, ready: bool) -> JSONResponse:
    return JSONResponse({"name": name, "ready": ready}, 200 if ready else 503)


def _task(known: Knowledge, name: str) -> Task:
    found = known.tasks.get(TaskName(name))
    if found is None:
        raise TaskNotFound(f"there is no task {name[:128]!r}")
    return found


def _variants(known: Knowledge, task: Task, *stages: Stage) -> list[str]:
    """Variants of the task's versions at these stages, else live and canary, by name."""
    catalog = known.catalog
    answering = {
        (v.model, v.version)
        for v in catalog.versions
        if v.task == task.name and v.stage in (stages or (Stage.LIVE, Stage.CANARY))
    }
    return [
        v.name
        for v in catalog.variants
        if v.task == task.name and (v.model, v.version) in answering
    ]


def _variant(known: Knowledge, task: Task, variant: str) -> None:
    if variant not in _variants(known, task):
        raise NotFound(f"task {task.name!r} has no variant {variant[:128]!r}")


def _describe(known: Knowledge, task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "versions": _variants(known, task),
        "platform": "modelless",
        "inputs": [_tensor(spec) for spec in task.inputs],
        "outputs": [_tensor(spec) for spec in task.outputs],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": V2_NAMES[spec.dtype], "shape": [-1, *spec.shape]}
