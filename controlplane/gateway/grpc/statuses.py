"""How errors look over gRPC: a status for each code, the code in front of the sentence.

Most clients show a status and its text and nothing else, so both are in there. The trailing
metadata hold them apart: ``modelless-code``, ``modelless-retryable``, ``x-request-id`` and, where
they are known, ``retry-after`` in seconds and ``modelless-alternatives`` as JSON. The same is in
``grpc-status-details-bin`` in the types of ``google.rpc``, for clients that look there.
"""

import json
from collections.abc import Iterable, Mapping
from math import floor
from typing import Any

from grpc import StatusCode

from controlplane.gateway.grpc.messages import ProtoFile

STATUSES: Mapping[str, StatusCode] = {
    "INVALID_INPUT": StatusCode.INVALID_ARGUMENT,
    "UNAUTHENTICATED": StatusCode.UNAUTHENTICATED,
    "FORBIDDEN": StatusCode.PERMISSION_DENIED,
    "TASK_NOT_FOUND": StatusCode.NOT_FOUND,
    "NOT_FOUND": StatusCode.NOT_FOUND,
    "CONFLICT": StatusCode.FAILED_PRECONDITION,
    "PAYLOAD_TOO_LARGE": StatusCode.RESOURCE_EXHAUSTED,
    "SLO_INFEASIBLE": StatusCode.FAILED_PRECONDITION,
    "RATE_LIMITED": StatusCode.RESOURCE_EXHAUSTED,
    "INTERNAL": StatusCode.INTERNAL,
    "OVERLOADED": StatusCode.UNAVAILABLE,
    "NO_WORKERS": StatusCode.UNAVAILABLE,
    "COLD": StatusCode.UNAVAILABLE,
    "ARTIFACT_INVALID": StatusCode.FAILED_PRECONDITION,
    "REPLICA_LOST": StatusCode.UNAVAILABLE,
    "STATE_UNAVAILABLE": StatusCode.UNAVAILABLE,
    "DEADLINE_EXCEEDED": StatusCode.DEADLINE_EXCEEDED,
}
"""The status of each code of ``controlplane.http_errors``."""

LONGEST = 2_000
"""Bytes of a text on the wire, where all metadata of a call may have 8 KiB together."""

MOST_ALTERNATIVES = 1_500
"""Bytes of the alternatives of a refusal, of which the last are left out."""
DETAILS = "grpc-status-details-bin"
DOMAIN = "modelless"
"""Says in ``google.rpc.ErrorInfo`` whose error codes these are."""
_TYPES = "type.googleapis.com/google.rpc."

Metadata = tuple[tuple[str, str | bytes], ...]

_details = ProtoFile("error_details.proto")
_Status = _details.message_class("Status")
_ErrorInfo = _details.message_class("ErrorInfo")
_RetryInfo = _details.message_class("RetryInfo")
_RequestInfo = _details.message_class("RequestInfo")


def status_of(body: Mapping[str, Any]) -> tuple[StatusCode, str, Metadata]:
    """Status, text and trailing metadata of an error, of its body as JSON has it."""
    code = str(body["code"])
    metadata: list[tuple[str, str | bytes]] = [
        ("modelless-code", code),
        ("modelless-retryable", "true" if body["retryable"] else "false"),
        ("x-request-id", str(body["request_id"])),
    ]
    if (wait_s := body.get("retry_after_s")) is not None:
        metadata.append(("retry-after", f"{wait_s:g}"))
    if alternatives := body.get("alternatives"):
        metadata.append(("modelless-alternatives", _fitting(alternatives)))
    status, text = STATUSES.get(code, StatusCode.UNKNOWN), sentence(body)
    metadata.append((DETAILS, _typed(status, text, body)))
    return status, text, tuple(metadata)


def _fitting(alternatives: Iterable[Mapping[str, Any]]) -> str:
    """As many of them as JSON as there is room for."""
    found: list[Mapping[str, Any]] = []
    for one in alternatives:
        if len(_ascii([*found, one])) > MOST_ALTERNATIVES:
            break
        found.append(one)
    return _ascii(found)


def _ascii(value: Any) -> str:
    """JSON as metadata can have it."""
    return json.dumps(value, separators=(",", ":"))


def _typed(status: StatusCode, text: str, body: Mapping[str, Any]) -> bytes:
    """A ``google.rpc.Status`` of status, text, and what else the error says."""
    number, _ = status.value
    told = _Status(code=number, message=text)
    info = _ErrorInfo(reason=str(body["code"]), domain=DOMAIN)
    info.metadata["retryable"] = "true" if body["retryable"] else "false"
    parts = [("ErrorInfo", info), ("RequestInfo", _RequestInfo(request_id=str(body["request_id"])))]
    if (wait_s := body.get("retry_after_s")) is not None:
        retry = _RetryInfo()
        retry.retry_delay.seconds = floor(wait_s)
        retry.retry_delay.nanos = floor(1e9 * (wait_s - floor(wait_s)))
        parts.append(("RetryInfo", retry))
    for name, part in parts:
        told.details.add(type_url=_TYPES + name, value=part.SerializeToString())
    return bytes(told.SerializeToString())


def sentence(body: Mapping[str, Any]) -> str:
    """Code and sentence in one line."""
    text = f"{body['code']}: {body['error']}"
    # A byte that is not ASCII is written as three, and a character has up to four bytes.
    room = LONGEST if text.isascii() else LONGEST // 12
    return text if len(text) <= room else f"{text[: room - 4]} ..."
