"""What became of a registration: by what its child process has written, and how it ended."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.registry.child_process import json_object

REGISTERED = "registered"
"""What progress says once all is written: nothing ends it then."""


def failed(code: str, message: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    """A failure, as the fields of an operation."""
    error = {"error": message, "code": code, "retryable": False, "request_id": operation["id"]}
    return {"state": "failed", "error": error}


def outcome_of(
    code: int, output: bytes, errors: Sequence[str], operation: Mapping[str, Any]
) -> dict[str, Any]:
    """Success with the child's result, or its typed error, or an internal one."""
    result = json_object(output.decode("utf-8", "replace"))
    if code == 0 and result is not None and "error" not in result:
        return {"state": "succeeded", "result": result}
    told = [found for line in errors if (found := json_object(line)) and "error" in found]
    if result is not None and "error" in result:
        told.append(result)
    if told:
        error = told[-1]
        return failed(str(error.get("code", "INVALID_INPUT")), str(error["error"]), operation)
    if code == 2 and errors:
        return failed(
            "INVALID_INPUT", errors[-1].removeprefix("Error: ").removeprefix("error: "), operation
        )
    return failed("INTERNAL", "internal error", operation)
