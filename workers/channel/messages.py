"""Control messages of the tensor channel as JSON, and back into values."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import orjson

from variants.core_time import CoreTime
from variants.errors import (
    ArtifactDamaged,
    Conflict,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    ModellessError,
    NotFound,
    Overloaded,
    ReplicaLost,
    RuntimeFailed,
    VariantNotLoadable,
)
from variants.types import Digest, ReplicaState, TaskName, TensorSpec, VariantName
from workers.types import Checked, LoadSpec, Occurrence, OccurrenceKind, ReplicaStatus, WorkerStatus

_ERRORS: dict[str, type[ModellessError]] = {
    kind.__name__: kind
    for kind in (
        ArtifactDamaged, Conflict, DeadlineExceeded, Internal, InvalidInput, NotFound, Overloaded,
        ReplicaLost, RuntimeFailed, VariantNotLoadable,
    )
}  # fmt: skip


def encode(value: Any) -> bytes:
    """JSON of a value of plain types and dataclasses."""
    return orjson.dumps(value)


def encode_status(status: WorkerStatus, replicas: Iterable[bytes]) -> bytes:
    """JSON of a worker's status, with those of its replicas as they were written one by one."""
    told = {field.name: getattr(status, field.name) for field in fields(status)}
    told["replicas"] = [orjson.Fragment(replica) for replica in replicas]
    return encode(told)


def decode(data: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InvalidInput: it is none.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"a control message is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("a control message is no JSON object")
    return value


def encode_error(error: ModellessError) -> bytes:
    """JSON of an error: the name of its class and its message."""
    return encode({"error": type(error).__name__, "message": error.message})


def decode_error(data: bytes) -> ModellessError:
    """The error that ``encode_error`` wrote; ``Internal`` for one that is not known."""
    value = decode(data)
    kind = _ERRORS.get(str(value.get("error")), Internal)
    return kind(str(value.get("message", "")))


def decode_load(value: dict[str, Any]) -> LoadSpec:
    """A load spec.

    Raises:
        InvalidInput: a field is missing or wrong.
    """
    try:
        latency = tuple((int(b), float(ms)) for b, ms in value["latency"])
        longest_ms = value.get("longest_batch_ms")
        planned_qps = value.get("planned_qps")
        spec = LoadSpec(
            task=TaskName(str(value["task"])),
            variant=VariantName(str(value["variant"])),
            runtime=str(value["runtime"]),
            artifact=Digest(str(value["artifact"])),
            path=str(value["path"]),
            inputs=_tensors(value["inputs"]),
            outputs=_tensors(value["outputs"]),
            latency=latency,
            memory_mib=float(value["memory_mib"]),
            load_s=float(value["load_s"]),
            share=float(value["share"]),
            planned_qps=None if planned_qps is None else float(planned_qps),
            longest_batch_ms=None if longest_ms is None else float(longest_ms),
            pinned=None if value.get("pinned") is None else value["pinned"] is True,
            options=tuple((str(key), str(text)) for key, text in value["options"]),
            typical=tuple((int(b), float(ms)) for b, ms in value.get("typical", ())),
            device_kind=str(value.get("device_kind", "")),
            own_working_mib=float(value.get("own_working_mib", 0.0)),
            cold_load_s=None if (cold_s := value.get("cold_load_s")) is None else float(cold_s),
            counts_answers=value.get("counts_answers") is True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"a load message is wrong: {error!r}") from error
    for sizes in ([size for size, _ in latency], [size for size, _ in spec.typical] or [1]):
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1:
            raise InvalidInput("a load message has batch sizes that do not ascend from 1 or more")
    return spec


def _tensors(values: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            name=str(value["name"]),
            dtype=str(value["dtype"]),
            shape=tuple(int(n) for n in value["shape"]),
        )
        for value in values
    )


_REPLICA = frozenset(field.name for field in fields(ReplicaStatus))
_WORKER = frozenset(field.name for field in fields(WorkerStatus))
_CORE_TIME = frozenset(field.name for field in fields(CoreTime))


def decode_replica(value: dict[str, Any]) -> ReplicaStatus:
    """A replica's status."""
    kept = _known(value, _REPLICA)
    kept["state"] = ReplicaState(value["state"])
    if latency := value.get("latency"):
        kept["latency"] = tuple([(int(n), float(mean), float(p95)) for n, mean, p95 in latency])
    else:
        kept["latency"] = ()
    kept["busy"] = tuple(
        [(int(rows), float(ms), float(error)) for rows, ms, error in value.get("busy", ())]
    )
    kept["beside_sizes"] = tuple([int(rows) for rows in value.get("beside_sizes", ())])
    kept["answered"] = tuple(map(int, value.get("answered", ())))
    return ReplicaStatus(**kept)


def _known(value: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """The fields that are known here: a worker of another release may say more."""
    if value.keys() <= names:
        return value.copy()
    return {name: item for name, item in value.items() if name in names}


def decode_status(data: bytes) -> WorkerStatus:
    """A worker's status.

    Raises:
        InvalidInput: a field is missing or wrong.
    """
    value = decode(data)
    try:
        kept = _known(value, _WORKER)
        replicas = tuple([decode_replica(item) for item in value["replicas"]])
        warnings = tuple(str(item) for item in value.get("warnings", ()))
        evictable = tuple((float(mib), float(cost)) for mib, cost in value.get("evictable", ()))
        cores = tuple(int(core) for core in value.get("cores", ()))
        decoded = {"replicas": replicas, "warnings": warnings, "evictable": evictable}
        told = value.get("core_time")
        core_time = None if told is None else CoreTime(**_known(told, _CORE_TIME))
        return WorkerStatus(**{**kept, **decoded, "cores": cores, "core_time": core_time})
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"a status message is wrong: {error!r}") from error


def decode_told(value: dict[str, Any]) -> tuple[list[int], int]:
    """Numbers of occurrences that are stored for good, and the one after which others are wanted.

    Raises:
        InvalidInput: they are no numbers.
    """
    try:
        return [int(seq) for seq in value.get("told", ())], int(value.get("after", 0))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a history message is wrong: {error!r}") from error


def decode_history(data: bytes) -> list[Occurrence]:
    """Occurrences of a worker; a kind that is not known here is left out.

    Raises:
        InvalidInput: a field is missing or wrong.
    """
    known = {kind.value for kind in OccurrenceKind}
    try:
        return [
            Occurrence(
                seq=int(one["seq"]),
                kind=OccurrenceKind(one["kind"]),
                task=TaskName(str(one["task"])),
                variant=VariantName(str(one["variant"])),
                why=str(one["why"]),
            )
            for one in orjson.loads(data)
            if one["kind"] in known
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"a history is wrong: {error!r}") from error


def decode_checked(data: bytes) -> Checked:
    """What came of checking a profile.

    Raises:
        InvalidInput: a field is missing or wrong.
    """
    value = decode(data)
    try:
        return Checked(
            batches=int(value["batches"]),
            took_ms=float(value["took_ms"]),
            spent_ms=float(value["spent_ms"]),
            total=int(value["total"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"the answer to a check is wrong: {error!r}") from error


def decode_seen(value: dict[str, Any]) -> tuple[int, bool] | None:
    """What an unload was decided upon, ``load_no`` and ``asked``; None where a message says it not.

    Raises:
        InvalidInput: it is wrong.
    """
    seen = value.get("seen")
    if seen is None:
        return None
    try:
        number, asked = seen
        return int(number), bool(asked)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"what an unload was decided upon is wrong: {error!r}") from error


def named(value: dict[str, Any]) -> tuple[str, str]:
    """Task and variant of a message.

    Raises:
        InvalidInput: one is missing.
    """
    task, variant = value.get("task"), value.get("variant")
    if not isinstance(task, str) or not isinstance(variant, str):
        raise InvalidInput("a control message names no task or no variant")
    return task, variant
