"""Registration over REST, against a small child in the place of the command line."""

import pytest

from tests.controlplane.registry.over_rest.room import (
    FILES,
    FORM,
    SLEEPS,
    SUCCEEDS,
    Room,
    finished,
    post,
)

pytestmark = pytest.mark.slow

REFUSES = """
    import json, sys
    print("noise", file=sys.stderr)
    error = {"error": "the model has no input 'pixels'", "code": "INVALID_INPUT"}
    print(json.dumps(error), file=sys.stderr)
    sys.exit(2)
"""
CRASHES = "import os, sys; print('no luck', file=sys.stderr, flush=True); os.abort()"


async def test_a_registration_runs_the_command_line_with_the_uploaded_files(room: Room) -> None:
    async with room.serve(SUCCEEDS) as client:
        started = await post(
            client,
            FORM | {"labels": "a,b", "latency_ms": "50", "image_std": "0.5"},
            FILES | {"calibration": b"rows"},
        )
        operation = await finished(client, started)

    assert started.json()["state"] == "running"
    assert operation["state"] == "succeeded"
    assert operation["subject"] == "digits/mlp"
    assert operation["progress"] == {"step": "check", "message": "mlp"}
    assert operation["result"] == {
        "arguments": [
            "register",
            "--task=digits",
            "--name=mlp",
            "--labels=a,b",
            "--latency-ms=50",
            "--image-std=0.5",
            "--output=json",
            "--progress=json",
        ],
        "model": "onnx bytes",
        "evaluation": "npz bytes",
        "state_dir": str(room.settings.state_dir),
    }
    assert room.uploads() == []


@pytest.mark.parametrize(("value", "given"), [("true", True), ("false", False)])
async def test_whether_all_is_done_anew_is_an_option_of_the_command_line(
    room: Room, value: str, given: bool
) -> None:
    async with room.serve(SUCCEEDS) as client:
        operation = await finished(client, await post(client, FORM | {"fresh": value}))
    assert ("--fresh" in operation["result"]["arguments"]) is given


async def test_the_child_s_own_error_is_the_operation_s(room: Room) -> None:
    async with room.serve(REFUSES) as client:
        operation = await finished(client, await post(client))

    assert operation["state"] == "failed"
    assert operation["error"] == {
        "error": "the model has no input 'pixels'",
        "code": "INVALID_INPUT",
        "retryable": False,
        "request_id": operation["id"],
    }
    assert room.uploads() == []


async def test_a_child_that_crashes_is_an_internal_error(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    async with room.serve(CRASHES) as client:
        operation = await finished(client, await post(client))

    assert (operation["state"], operation["error"]["code"]) == ("failed", "INTERNAL")
    assert operation["error"]["error"] == "internal error"
    assert room.uploads() == []
    # Who reads the log finds by its request what the client is not told.
    [record] = [one for one in caplog.records if one.levelname == "ERROR"]
    said = record.getMessage()
    assert said.startswith(f"request {operation['id']}: registering digits/mlp ended with -6: ")
    assert "no luck" in said


async def test_operations_are_listed_the_newest_first(room: Room) -> None:
    """Whoever was refused for two that run could not find out which."""
    async with room.serve(SLEEPS) as client:
        started = [await post(client, FORM | {"name": name}) for name in "ab"]
        first, second = (one.json() for one in started)
        refused = await post(client)
        running = (await client.get("/v1/operations")).json()["operations"]
        await client.delete(started[0].headers["location"])
        await finished(client, started[0])
        after = (await client.get("/v1/operations")).json()["operations"]

    assert "GET /v1/operations lists them" in refused.json()["error"]
    assert [(one["id"], one["subject"], one["state"]) for one in running] == [
        (second["id"], "digits/b", "running"),
        (first["id"], "digits/a", "running"),
    ]
    assert [(one["id"], one["state"]) for one in after] == [
        (second["id"], "running"),
        (first["id"], "failed"),
    ]


async def test_a_third_registration_at_once_is_refused(room: Room) -> None:
    async with room.serve(SLEEPS) as client:
        first, second, third = [await post(client) for _ in range(3)]

    assert [reply.status_code for reply in (first, second, third)] == [202, 202, 429]
    assert third.json()["code"] == "RATE_LIMITED"


async def test_an_unknown_operation_is_not_found(room: Room) -> None:
    async with room.serve(SUCCEEDS) as client:
        reply = await client.get("/v1/operations/none")

    assert (reply.status_code, reply.json()["code"]) == (404, "NOT_FOUND")
