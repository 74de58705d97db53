"""A small catalog with round numbers, and live state that lives in a dictionary."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.feedback.by_class import ByClass
from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import Catalog
from variants.core_time import CoreTime
from variants.errors import StateUnavailable
from variants.types import (
    DeviceKind,
    DeviceKindName,
    Digest,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Precision,
    Profile,
    Registration,
    ReplicaState,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    Variant,
    VariantName,
)
from workers.types import ReplicaStatus, WorkerStatus

DIGITS = Task(
    name=TaskName("digits"),
    inputs=(TensorSpec(name="pixels", dtype="float32", shape=(64,)),),
    outputs=(TensorSpec(name="scores", dtype="float32", shape=(10,)),),
    labels=tuple("0123456789"),
)
CPU = DeviceKind(name=DeviceKindName("cpu-4"), cores=4, memory_mib=4_000.0, usd_per_hour=3.6)


def digest(text: str) -> Digest:
    return Digest(text.encode().hex().ljust(64, "0")[:64])


def variant(
    model: str, *, accuracy: float, version: int = 1, precision: Precision = Precision.FP32
) -> Variant:
    name = VariantName(f"{model}-v{version}-onnx-{precision}")
    return Variant(
        task=DIGITS.name,
        name=name,
        model=ModelName(model),
        version=version,
        runtime="onnx",
        precision=precision,
        artifact=digest(name),
        size_bytes=1_000,
        accuracy=accuracy,
        accuracy_rows=360,
    )


def profile(of: Variant, *, p50_ms: float, p95_ms: float, kind: DeviceKind = CPU) -> Profile:
    """One row takes ``p50_ms``, eight rows take four times as long."""
    return Profile(
        task=of.task,
        variant=of.name,
        device_kind=kind.name,
        points=(
            LatencyPoint(batch_size=1, p50_ms=p50_ms, p95_ms=p95_ms, p99_ms=2 * p95_ms),
            LatencyPoint(batch_size=8, p50_ms=4 * p50_ms, p95_ms=4 * p95_ms, p99_ms=8 * p95_ms),
        ),
        memory_mib=10.0,
        load_s=0.5,
    )


def register(
    catalog: Catalog,
    model: str,
    *measured: tuple[float, float],
    version: int = 1,
    stage: Stage = Stage.LIVE,
) -> None:
    """Register a model with an fp32 and, given a second pair, an int8 variant.

    Each pair is (accuracy, p95 in ms); the median is half of the p95.
    """
    variants = [
        variant(model, accuracy=accuracy, version=version, precision=precision)
        for (accuracy, _), precision in zip(
            measured, (Precision.FP32, Precision.INT8), strict=False
        )
    ]
    catalog.register(
        Registration(
            task=DIGITS,
            version=ModelVersion(
                task=DIGITS.name,
                model=ModelName(model),
                version=version,
                stage=stage,
                source=digest(f"{model}-v{version}"),
                created_at="2026-01-01T00:00:00+00:00",
            ),
            variants=tuple(variants),
            profiles=tuple(
                profile(one, p50_ms=p95_ms / 2, p95_ms=p95_ms)
                for one, (_, p95_ms) in zip(variants, measured, strict=True)
            ),
            device_kinds=(CPU,),
        )
    )


def digits_catalog() -> MemoryCatalog:
    """Three live models: ``linear``, ``mlp`` (with int8) and ``slow``, which ``mlp`` beats."""
    catalog = MemoryCatalog()
    register(catalog, "linear", (0.90, 1.0))
    register(catalog, "mlp", (0.98, 10.0), (0.97, 5.0))
    register(catalog, "slow", (0.95, 20.0))
    return catalog


def worker(
    name: str, *ready: str, loading: Sequence[str] = (), busy_ratio: float = 0.25
) -> WorkerStatus:
    states = [(one, ReplicaState.READY) for one in ready]
    states += [(one, ReplicaState.LOADING) for one in loading]
    return WorkerStatus(
        worker=name,
        device_kind=CPU.name,
        memory_mib=4_000.0,
        reserved_mib=10.0 * len(states),
        draining=False,
        backlog_us=0,
        busy_ratio=busy_ratio,
        replicas=tuple(
            ReplicaStatus(task=DIGITS.name, variant=VariantName(one), state=state, memory_mib=10.0)
            for one, state in states
        ),
    )


class DictLive:
    """Live state in a dictionary: what the control API reads, and operations."""

    def __init__(self, *workers: WorkerStatus) -> None:
        self.statuses: list[WorkerStatus | Mapping[str, Any]] = list(workers)
        self.operations: dict[str, dict[str, Any]] = {}
        self.seen_nodes: dict[str, Any] | None = None
        self.told: dict[str, Any] | None = None
        """What the control loop told of itself."""
        self.core_readings: list[CoreTime] = []
        self.refusal = ""
        """Why it takes nothing."""
        self.client_rows: list[dict[str, Any]] = []
        self.old_token_use: dict[str, Any] | None = None
        self.seen_machines: dict[str, Any] | None = None
        self.judged_rows: dict[str, dict[str, tuple[int, int]]] = {}
        self.judged_classes: dict[str, dict[str, ByClass]] = {}
        self.judged_canaries: dict[str, Any] = {}
        self.said: list[dict[str, Any]] = []
        """Notices of nodes that go."""
        row = {"task": "digits", "requests": 10, "met": 8, "late": 1, "refused": 1}
        self.slo: dict[str, Any] = {
            "window_s": 60.0,
            "tasks": [row | {"attainment": 0.8, "share_met": 0.8}],
        }
        self.samples: list[dict[str, Any]] = []
        """How the last ten seconds went, at gateways."""
        self.unloaded: list[tuple[str, str, str]] = []
        self.drained: list[str] = []
        self.gone = False
        """Whether what workers say cannot be read."""

    async def worker_status(self) -> Sequence[WorkerStatus | Mapping[str, Any]]:
        if self.gone:
            raise StateUnavailable("the live state does not answer")
        return self.statuses

    async def whole_worker_status(self) -> Sequence[WorkerStatus]:
        await self.worker_status()
        return [one for one in self.statuses if isinstance(one, WorkerStatus)]

    async def unload(self, worker: str, task: str, variant: str, /) -> None:
        self.unloaded.append((worker, task, variant))

    async def drain(self, worker: str, /) -> None:
        self.drained.append(worker)

    async def operation(self, id: str, /) -> Mapping[str, Any] | None:
        return self.operations.get(id)

    async def all_operations(self) -> Mapping[str, Mapping[str, Any]]:
        return self.operations

    async def put_operation(self, id: str, body: Mapping[str, Any], /) -> None:
        self.operations[id] = dict(body)

    async def nodes(self) -> Mapping[str, Any] | None:
        if self.gone:
            raise StateUnavailable("the live state does not answer")
        return self.seen_nodes

    def refused(self) -> str:
        return self.refusal

    async def core_times(self) -> Sequence[CoreTime]:
        return self.core_readings

    async def controller(self) -> Mapping[str, Any] | None:
        if self.gone:
            raise StateUnavailable("the live state does not answer")
        return self.told

    async def clients(self) -> Sequence[Mapping[str, Any]]:
        return self.client_rows

    async def old_token(self) -> Mapping[str, Any] | None:
        return self.old_token_use

    async def machines(self) -> Mapping[str, Any] | None:
        return self.seen_machines

    async def feedback(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        if self.gone:
            raise StateUnavailable("the live state does not answer")
        return self.judged_rows

    async def feedback_by_class(self) -> Mapping[str, Mapping[str, ByClass]]:
        if self.gone:
            raise StateUnavailable("the live state does not answer")
        return self.judged_classes

    async def canaries(self) -> Mapping[str, Any]:
        if self.gone:
            raise StateUnavailable("the live state does not answer")
        return self.judged_canaries

    async def put_notice(self, notice: Mapping[str, Any], /) -> None:
        self.said.append(dict(notice))

    async def history(self) -> Sequence[Mapping[str, Any]]:
        return self.samples

    async def slo_report(self) -> Mapping[str, Any]:
        return self.slo
