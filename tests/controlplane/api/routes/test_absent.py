"""What is asked for and is not there."""

import httpx
import pytest


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/v1/profiles?tasks=digits", "did you mean 'task'? Known are: device_kind, task, variant"),
        ("/v1/plan?limit=5", "GET /v1/plan has no parameter 'limit'; known are: task"),
        ("/v1/workers?lmit=5", "did you mean 'limit'? Known are: after, limit"),
        ("/v1/events?kinds=loaded", "did you mean 'kind'?"),
        ("/v1/history?second=60", "did you mean 'seconds'?"),
        ("/v1/slo?task=digits", "GET /v1/slo has no parameter 'task', and none at all"),
        ("/v1/tasks?name=digits", "GET /v1/tasks has no parameter 'name', and none at all"),
        ("/v1/tasks/digits/variants?limit=1", "has no parameter 'limit', and none at all"),
    ],
)
async def test_a_parameter_that_nobody_reads_is_refused(
    api: httpx.AsyncClient, path: str, why: str
) -> None:
    reply = await api.get(path)
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert why in reply.json()["error"]


async def test_known_parameters_are_read_as_before(api: httpx.AsyncClient) -> None:
    for path in (
        "/v1/profiles?task=digits&variant=mlp-v1-onnx-int8&device_kind=cpu-4",
        "/v1/ticks?limit=5&changes=false",
        "/v1/plan?task=digits",
        "/v1/workers?limit=5&after=a",
        "/v1/events?kind=loaded&kind=unloaded&limit=5&task=digits",
        "/v1/history?task=digits&seconds=60",
        "/v1/ticks?limit=5",
    ):
        reply = await api.get(path)
        assert reply.status_code == 200, (path, reply.text)


@pytest.mark.parametrize(
    ("path", "code", "why"),
    [
        ("/v1/profiles?task=nope", "TASK_NOT_FOUND", "there is no task 'nope'"),
        ("/v1/plan?task=nope", "TASK_NOT_FOUND", "there is no task 'nope'"),
        ("/v1/history?task=nope", "TASK_NOT_FOUND", "there is no task 'nope'"),
        (
            "/v1/profiles?task=digits&variant=nope",
            "NOT_FOUND",
            "task 'digits' has no variant 'nope'; there are: ",
        ),
        ("/v1/profiles?variant=nope", "NOT_FOUND", "there is no variant 'nope'; there are: "),
        (
            "/v1/profiles?device_kind=cpu-99",
            "NOT_FOUND",
            "there is no device kind 'cpu-99'; there are: cpu-2, cpu-4",
        ),
        ("/v1/workers/nope", "NOT_FOUND", "there is no worker 'nope'"),
    ],
)
async def test_what_is_not_there_is_said(
    api: httpx.AsyncClient, path: str, code: str, why: str
) -> None:
    reply = await api.get(path)
    assert (reply.status_code, reply.json()["code"]) == (404, code)
    assert why in reply.json()["error"]
