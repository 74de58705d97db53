"""From values to rows of the tables and back. Only ``variants.catalog.sql`` and this module see
rows."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Row

from variants.buckets import read_bucket
from variants.types import (
    DeviceKind,
    ImageScale,
    LatencyPoint,
    ModelVersion,
    Placement,
    Plan,
    Precision,
    Prefer,
    Profile,
    ProfileSource,
    Route,
    Sharing,
    Slo,
    Stage,
    Task,
    TensorSpec,
    TextInput,
    Variant,
)

PointsByProfile = dict[tuple[str, str, str], list[LatencyPoint]]
"""(task, variant, device kind) to its points, ascending by batch size."""


def task_row(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "inputs": [asdict(spec) for spec in task.inputs],
        "outputs": [asdict(spec) for spec in task.outputs],
        "labels": list(task.labels),
        "metric": task.metric,
        **slo_row(task.slo),
        **sharing_row(task.sharing),
        **image_row(task.image),
        "bucket": None if task.bucket is None else asdict(task.bucket),
        **text_row(task.text),
    }


def slo_row(slo: Slo) -> dict[str, Any]:
    """The columns of a task that say what holds when a query names nothing."""
    return {f"slo_{name}": value for name, value in asdict(slo).items()}


def sharing_row(sharing: Sharing | None) -> dict[str, Any]:
    """The columns of a task that say how its answers are shared."""
    return {
        "sharing_ttl_s": None if sharing is None else sharing.ttl_s,
        "sharing_memory_mib": None if sharing is None else sharing.memory_mib,
    }


def image_row(image: ImageScale | None) -> dict[str, Any]:
    """The column of a task that says how pictures become numbers."""
    if image is None:
        return {"image": None}
    return {"image": {"mean": list(image.mean), "std": list(image.std)}}


def text_row(text: TextInput | None) -> dict[str, Any]:
    """The column of a task, or of a version with another tokenizer, that says how texts become
    rows."""
    if text is None:
        return {"text": None}
    later = {"pairs": None, "packed_types": False}  # which earlier releases do not know
    row = {name: one for name, one in asdict(text).items() if (name, one) not in later.items()}
    return {"text": row}


def version_row(version: ModelVersion) -> dict[str, Any]:
    return asdict(replace(version, text=None)) | text_row(version.text)


def variant_row(variant: Variant) -> dict[str, Any]:
    row = asdict(replace(variant, options=dict(variant.options)))
    del row["measured_accuracy"]  # of what is decided by, and not of what was measured
    for name in ("answered", "found"):
        row[name] = row[name] or None
    return row


def plan_row(plan: Plan) -> dict[str, Any]:
    row = asdict(plan)
    body = {name: row.pop(name) for name in ("placements", "workers", "explanation", "routes")}
    # Beside the routes, of which readers of an earlier version know every field.
    body["slos_ms"] = [route.pop("slo_ms") for route in body["routes"]]
    return row | {"body": body}


def profile_rows(profile: Profile) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of a profile and the rows of its points."""
    row = asdict(profile)
    key = {name: row[name] for name in ("task", "variant", "device_kind")}
    return row, [key | point for point in row.pop("points")]


def read_task(row: Row[Any]) -> Task:
    return Task(
        name=row.name,
        inputs=tuple(map(_read_tensor, row.inputs)),
        outputs=tuple(map(_read_tensor, row.outputs)),
        labels=tuple(row.labels),
        metric=row.metric,
        slo=Slo(
            latency_ms=row.slo_latency_ms,
            accuracy=row.slo_accuracy,
            cost=row.slo_cost,
            prefer=Prefer(row.slo_prefer),
        ),
        sharing=None
        if row.sharing_ttl_s is None
        else Sharing(ttl_s=row.sharing_ttl_s, memory_mib=row.sharing_memory_mib),
        image=None
        if row.image is None
        else ImageScale(mean=tuple(row.image["mean"]), std=tuple(row.image["std"])),
        bucket=read_bucket(row.bucket),
        text=_read_text(row.text),
    )


def _read_text(document: dict[str, Any] | None) -> TextInput | None:
    return None if document is None else TextInput(**document)


def _read_tensor(document: dict[str, Any]) -> TensorSpec:
    return TensorSpec(
        name=document["name"], dtype=document["dtype"], shape=tuple(document["shape"])
    )


def read_version(row: Row[Any]) -> ModelVersion:
    return ModelVersion(
        **dict(row._mapping) | {"stage": Stage(row.stage), "text": _read_text(row.text)}
    )


def read_variant(row: Row[Any]) -> Variant:
    read = {
        "precision": Precision(row.precision),
        "answered": tuple(row.answered or ()),
        "found": tuple(map(tuple, row.found or ())),
    }
    return Variant(**dict(row._mapping) | read)


def read_device_kind(row: Row[Any]) -> DeviceKind:
    carbon = tuple(row.carbon_g_per_kwh or ())  # NULL in rows of older versions
    return DeviceKind(**dict(row._mapping) | {"carbon_g_per_kwh": carbon})


def read_point(row: Row[Any]) -> LatencyPoint:
    return LatencyPoint(
        batch_size=row.batch_size,
        p50_ms=row.p50_ms,
        p95_ms=row.p95_ms,
        p99_ms=row.p99_ms,
        error=row.error,
        energy_j=row.energy_j,
    )


def read_profile(row: Row[Any], points: PointsByProfile) -> Profile:
    return Profile(
        **dict(row._mapping)
        | {
            "source": ProfileSource(row.source),
            "points": tuple(points.get((row.task, row.variant, row.device_kind), ())),
        }
    )


def _read_routes(body: Mapping[str, Any]) -> Iterator[Route]:
    """The routes of a plan's body; those of an earlier version have no tightest SLOs."""
    routes = body.get("routes", ())
    slos_ms = body.get("slos_ms") or [None] * len(routes)
    for route, slo_ms in zip(routes, slos_ms, strict=True):
        yield Route(**route, slo_ms=slo_ms)


def read_plan(row: Row[Any]) -> Plan:
    return Plan(
        version=row.version,
        epoch=row.epoch,
        placements=tuple(Placement(**placement) for placement in row.body["placements"]),
        workers=row.body["workers"],
        explanation=tuple(row.body["explanation"]),
        created_at=row.created_at,
        routes=tuple(_read_routes(row.body)),
    )
