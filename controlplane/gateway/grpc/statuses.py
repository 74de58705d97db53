"""How errors look over gRPC: a status for each code, the code in front of the sentence.

Most clients show a status and its text and nothing else, so both are in there. The trailing
metadata hold them apart: ``modelless-code``, ``modelless-retryable``, ``x-request-id`` and, where
it is known, ``retry-after`` in seconds.
"""

from collections.abc import Mapping
from typing import Any

from grpc import StatusCode

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

Metadata = tuple[tuple[str, str], ...]


def status_of(body: Mapping[str, Any]) -> tuple[StatusCode, str, Metadata]:
    """Status, text and trailing metadata of an error, of its body as JSON has it."""
    code = str(body["code"])
    metadata = [
        ("modelless-code", code),
        ("modelless-retryable", "true" if body["retryable"] else "false"),
        ("x-request-id", str(body["request_id"])),
    ]
    if (wait_s := body.get("retry_after_s")) is not None:
        metadata.append(("retry-after", f"{wait_s:g}"))
    return STATUSES.get(code, StatusCode.UNKNOWN), sentence(body), tuple(metadata)


def sentence(body: Mapping[str, Any]) -> str:
    """Code and sentence in one line."""
    text = f"{body['code']}: {body['error']}"
    # A byte that is not ASCII is written as three, and a character has up to four bytes.
    room = LONGEST if text.isascii() else LONGEST // 12
    return text if len(text) <= room else f"{text[: room - 4]} ..."
