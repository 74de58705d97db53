"""Open Inference Protocol v2: health, metadata, repository index. Inference has its own path."""

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from controlplane.replies import V2_NAMES
from variants.errors import NotFound, TaskNotFound
from variants.types import Stage, Task, TaskName, TensorSpec

if TYPE_CHECKING:
    from controlplane.gateway import Gateway

EXTENSIONS = ["binary_tensor_data", "model_repository", "statistics"]


def add_protocol_routes(api: FastAPI, gateway: "Gateway") -> None:
    """Add the protocol's read-only routes to the application."""
    _health(api, gateway)
    _metadata(api, gateway)
    _statistics(api, gateway)


def _health(api: FastAPI, gateway: "Gateway") -> None:
    tags: list[Any] = ["protocol v2"]

    @api.get("/v2/health/live", tags=tags, summary="Alive")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @api.get("/v2/health/ready", tags=tags, summary="Ready to answer")
    async def ready() -> JSONResponse:
        """Ready as soon as some worker holds some variant."""
        state = gateway.ready()
        return JSONResponse({"ready": state}, 200 if state else 503)

    @api.get("/v2/models/{task}/ready", tags=tags, summary="Task ready")
    async def task_ready(task: str) -> JSONResponse:
        found = _task(gateway, task)
        return _readiness(found.name, any(_ready_variants(gateway, found)))

    @api.get("/v2/models/{task}/versions/{variant}/ready", tags=tags, summary="Variant ready")
    async def variant_ready(task: str, variant: str) -> JSONResponse:
        found = _task(gateway, task)
        _variant(gateway, found, variant)
        return _readiness(found.name, variant in _ready_variants(gateway, found))


def _metadata(api: FastAPI, gateway: "Gateway") -> None:
    tags: list[Any] = ["protocol v2"]

    @api.get("/v2", tags=tags, summary="Server metadata")
    async def server() -> dict[str, Any]:
        from importlib.metadata import version

        return {"name": "modelless", "version": version("modelless"), "extensions": EXTENSIONS}

    @api.get("/v2/models/{task}", tags=tags, summary="Task metadata")
    async def task_metadata(task: str) -> dict[str, Any]:
        return _describe(gateway, _task(gateway, task))

    @api.get("/v2/models/{task}/versions/{variant}", tags=tags, summary="Variant metadata")
    async def variant_metadata(task: str, variant: str) -> dict[str, Any]:
        found = _task(gateway, task)
        _variant(gateway, found, variant)
        return _describe(gateway, found)

    @api.post("/v2/repository/index", tags=tags, summary="Repository index")
    async def index() -> list[dict[str, Any]]:
        rows = []
        for task in gateway.path.tasks.values():
            ready = _ready_variants(gateway, task)
            for variant in _variants(gateway, task):
                state = "READY" if variant in ready else "UNAVAILABLE"
                reason = "" if variant in ready else "not loaded; loaded when a query needs it"
                rows.append(
                    {"name": task.name, "version": variant, "state": state, "reason": reason}
                )
        return rows


def _statistics(api: FastAPI, gateway: "Gateway") -> None:
    tags: list[Any] = ["protocol v2"]

    @api.get("/v2/models/{task}/stats", tags=tags, summary="Statistics of a task")
    async def task_statistics(task: str) -> dict[str, Any]:
        """What this gateway has answered since it started, by variant; times in nanoseconds."""
        return {"model_stats": _counted(gateway, _task(gateway, task))}

    @api.get(
        "/v2/models/{task}/versions/{variant}/stats", tags=tags, summary="Statistics of a variant"
    )
    async def variant_statistics(task: str, variant: str) -> dict[str, Any]:
        found = _task(gateway, task)
        _variant(gateway, found, variant)
        rows = [row for row in _counted(gateway, found) if row["version"] == variant]
        return {"model_stats": rows}


def _counted(gateway: "Gateway", task: Task) -> list[dict[str, Any]]:
    counters = gateway.path.counters.tasks.get(task.name)
    rows = []
    for variant in _variants(gateway, task):
        counted = counters.variants.get(variant) if counters else None
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


def _task(gateway: "Gateway", name: str) -> Task:
    found = gateway.path.tasks.get(TaskName(name))
    if found is None:
        raise TaskNotFound(f"there is no task {name[:128]!r}")
    return found


def _variants(gateway: "Gateway", task: Task) -> list[str]:
    """Variants of the task's live and canary versions, by name."""
    catalog = gateway.known
    answering = {
        (v.model, v.version)
        for v in catalog.versions
        if v.task == task.name and v.stage in (Stage.LIVE, Stage.CANARY)
    }
    return [
        v.name
        for v in catalog.variants
        if v.task == task.name and (v.model, v.version) in answering
    ]


def _variant(gateway: "Gateway", task: Task, variant: str) -> None:
    if variant not in _variants(gateway, task):
        raise NotFound(f"task {task.name!r} has no variant {variant[:128]!r}")


def _ready_variants(gateway: "Gateway", task: Task) -> set[str]:
    return {
        variant
        for link in gateway.links.values()
        if not link.view.draining
        for (name, variant) in link.ready
        if name == task.name
    }


def _describe(gateway: "Gateway", task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "versions": _variants(gateway, task),
        "platform": "modelless",
        "inputs": [_tensor(spec) for spec in task.inputs],
        "outputs": [_tensor(spec) for spec in task.outputs],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": V2_NAMES[spec.dtype], "shape": [-1, *spec.shape]}
