"""Errors over gRPC: status, code and sentence."""

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from tests.controlplane.gateway.grpc.calls import Stubs, connected, error_of, request
from tests.controlplane.gateway.grpc.service.asked import refused
from tests.controlplane.serving import DOUBLE, FAST, Served, serving
from tests.ports import free_port

WRONG: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "unknown task": (
        {"model_name": "nope"},
        grpc.StatusCode.NOT_FOUND,
        "TASK_NOT_FOUND: there is no task 'nope'; there are: letters",
    ),
    "unknown version": ({"model_version": "7"}, grpc.StatusCode.NOT_FOUND, "NOT_FOUND: "),
    "unknown input": (
        {"name": "z"},
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_INPUT: input 'z' is not an input of the task; expected: x",
    ),
    "wrong datatype": (
        {"datatype": "BYTES"},
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_INPUT: input 'x' must have datatype FP32, not 'BYTES'",
    ),
    "too few bytes": (
        {"raw": b"1234"},
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_INPUT: input 'x' needs 16 raw bytes, 4 were sent",
    ),
    "infeasible": (
        {"parameters": {"min_accuracy": 0.999}},
        grpc.StatusCode.FAILED_PRECONDITION,
        "SLO_INFEASIBLE: ",
    ),
    "wrong parameter": (
        {"parameters": {"prefer": "beauty"}},
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_INPUT: prefer must be one of: cost, accuracy, latency, energy",
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_is_wrong_has_status_code_and_sentence(
    served: Served, stubs: Stubs, what: str
) -> None:
    await served.worker("w1", FAST)
    fields, status, text = WRONG[what]
    found_status, found_text, metadata = await refused(stubs, request(**fields))
    assert (found_status, found_text[: len(text)]) == (status, text)
    assert metadata["modelless-code"] == text.partition(":")[0]
    assert metadata["modelless-retryable"] == "false"
    assert len(metadata["x-request-id"]) == 16
    code, of = metadata["modelless-code"], served.gateway.path.counters.task
    named = "" if code == "TASK_NOT_FOUND" else "letters"
    assert of(named).errors == {code: 1}


async def test_an_error_may_say_when_to_come_back(served: Served, stubs: Stubs) -> None:
    status, text, metadata = await refused(stubs, request())
    assert (status, text[:12]) == (grpc.StatusCode.UNAVAILABLE, "NO_WORKERS: ")
    assert metadata["modelless-retryable"] == "true"


async def test_a_message_that_is_none_is_refused(served: Served, stubs: Stubs) -> None:
    for name in ("ModelInfer", "ModelReady"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stubs.send(name, b"\x0a\xff")
        status, text, _ = error_of(caught.value)
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        assert text == f"INVALID_INPUT: the message is no {name}Request"


async def test_a_request_keeps_the_id_of_its_caller(served: Served, stubs: Stubs) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.infer(request(model_name="nope"), (("x-request-id", "mine"),))
    assert error_of(caught.value)[2]["x-request-id"] == "mine"


async def test_needs_in_metadata_are_not_missed(served: Served, stubs: Stubs) -> None:
    """They count for pictures over HTTP."""
    await served.worker("w1", DOUBLE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.infer(request(), (("slo-accuracy", "0.5"),))
    status, text, _ = error_of(caught.value)
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert text == (
        "INVALID_INPUT: metadata SLO-Accuracy counts for a picture alone; here the parameter"
        " min_accuracy says it"
    )


async def test_a_message_above_the_limit_is_refused(short_folder: Path, live_url: str) -> None:
    port = free_port()
    async with (
        serving(short_folder, live_url, grpc_port=port, max_body_mib=0.01),
        connected(port) as stubs,
    ):
        status, _, _ = await refused(stubs, request(np.zeros((1000, 4), "<f4")))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
