"""Small, valid things to put into a catalog, with round numbers."""

from dataclasses import replace
from typing import Any

from variants.catalog.protocol import Catalog
from variants.catalog.validity.tasks import labelled
from variants.types import (
    DeviceKind,
    DeviceKindName,
    Digest,
    Event,
    ImageScale,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Placement,
    Plan,
    Precision,
    Profile,
    Registration,
    Route,
    Sharing,
    Slo,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    TickRecord,
    Variant,
    VariantName,
    WorkerId,
)

CPU = DeviceKindName("cpu-1")


def task(name: str = "digits", **changes: Any) -> Task:
    pixels = TensorSpec(name="pixels", dtype="float32", shape=(64,))
    scores = TensorSpec(name="scores", dtype="float32", shape=(3,))
    given: dict[str, Any] = {
        "inputs": (pixels,),
        "outputs": (scores,),
        "labels": ("a", "b", "c"),
    } | changes
    return Task(name=TaskName(name), **given)


def version(
    model: str = "mlp", number: int = 1, of: str = "digits", stage: Stage = Stage.LIVE
) -> ModelVersion:
    return ModelVersion(
        task=TaskName(of),
        model=ModelName(model),
        version=number,
        stage=stage,
        source=Digest("a" * 64),
        created_at="2026-01-01T00:00:00Z",
    )


def variant(
    model: str = "mlp", number: int = 1, of: str = "digits", name: str = "", **changes: Any
) -> Variant:
    given: dict[str, Any] = {
        "runtime": "onnx",
        "precision": Precision.FP32,
        "artifact": Digest("b" * 64),
        "size_bytes": 1_000,
        "accuracy": 0.9,
        "accuracy_rows": 100,
    } | changes
    return Variant(
        task=TaskName(of),
        name=VariantName(name or f"{model}-v{number}-onnx-fp32"),
        model=ModelName(model),
        version=number,
        **given,
    )


def points(*pairs: tuple[int, float]) -> tuple[LatencyPoint, ...]:
    """(batch size, p50 in ms) to points; p95 is twice, p99 three times that."""
    return tuple(
        LatencyPoint(batch_size=b, p50_ms=ms, p95_ms=2 * ms, p99_ms=3 * ms) for b, ms in pairs
    )


def profile(
    name: str = "mlp-v1-onnx-fp32", of: str = "digits", kind: str = CPU, **changes: Any
) -> Profile:
    given: dict[str, Any] = {
        "points": points((1, 1.0), (8, 4.0)),
        "memory_mib": 10.0,
        "load_s": 0.5,
    } | changes
    return Profile(
        task=TaskName(of), variant=VariantName(name), device_kind=DeviceKindName(kind), **given
    )


def kind(name: str = CPU, **changes: Any) -> DeviceKind:
    given: dict[str, Any] = {"cores": 1, "memory_mib": 1_000.0, "usd_per_hour": 0.04} | changes
    return DeviceKind(name=DeviceKindName(name), **given)


def registration(
    model: str = "mlp", number: int = 1, of: str = "digits", **changes: Any
) -> Registration:
    """One version with one variant, profiled on ``cpu-1``."""
    given: dict[str, Any] = {
        "task": task(of),
        "version": version(model, number, of),
        "variants": (variant(model, number, of),),
        "profiles": (profile(f"{model}-v{number}-onnx-fp32", of),),
        "device_kinds": (kind(),),
    } | changes
    return Registration(**given)


def route(latency_ms: float, slo_ms: float | None = None) -> Route:
    return Route(
        task=TaskName("digits"),
        latency_ms=latency_ms,
        accuracy=None,
        variant=VariantName("mlp-v1-onnx-fp32"),
        worker=WorkerId("w-1"),
        batch_size=4,
        qps=10.0,
        slo_ms=slo_ms,
    )


def plan(epoch: int = 1, share: float = 0.5, number: int = 0) -> Plan:
    placement = Placement(
        worker=WorkerId("w-1"),
        task=TaskName("digits"),
        variant=VariantName("mlp-v1-onnx-fp32"),
        share=share,
    )
    return Plan(
        version=number,
        epoch=epoch,
        placements=(placement,),
        workers={CPU: 1},
        explanation=("demand is 10 qps",),
        created_at="2026-01-01T00:00:00Z",
    )


def tick(number: int, **body: Any) -> TickRecord:
    return TickRecord(plan_version=number, at="2026-01-01T00:00:00Z", body=body)


def event(message: str, seq: int = 0) -> Event:
    return Event(at="2026-01-01T00:00:00Z", kind="loaded", subject="w-1", message=message, seq=seq)


def set_slo(catalog: Catalog, of: str, slo: Slo) -> None:
    """Change the default SLO of a task."""
    catalog.change_tasks([TaskName(of)], lambda one: replace(one, slo=slo))


def set_sharing(catalog: Catalog, of: str, sharing: Sharing | None) -> None:
    """Change how answers of a task are shared."""
    catalog.change_tasks([TaskName(of)], lambda one: replace(one, sharing=sharing))


def set_image(catalog: Catalog, of: str, image: ImageScale | None) -> None:
    """Say how pictures of a task become numbers."""
    catalog.change_tasks([TaskName(of)], lambda one: replace(one, image=image))


def set_labels(catalog: Catalog, of: str, labels: tuple[str, ...]) -> None:
    """Name the classes of a task."""
    catalog.change_tasks([TaskName(of)], lambda one: labelled(one, labels))
