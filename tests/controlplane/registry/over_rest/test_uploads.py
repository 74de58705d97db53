"""Forms with files: what is refused, what waits for a place, and what is left of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from tests.controlplane.registry.over_rest.room import (
    FILES,
    FORM,
    SLEEPS,
    SUCCEEDS,
    Room,
    finished,
    post,
)
from variants.errors import RateLimited

pytestmark = pytest.mark.slow

REFUSES_ITS_FILES = """
    import json, os, sys
    model = sys.argv[2]
    name = os.path.basename(model)
    print(json.dumps({"step": "check", "message": f"checking {name}"}), file=sys.stderr, flush=True)
    error = f"mlp-v1: {name}: not as {model} or evaluation.npz, nor modelless/{name} or my-{name}"
    print(json.dumps({"error": error, "code": "INVALID_INPUT"}), file=sys.stderr)
    sys.exit(2)
"""


async def test_files_are_spoken_of_by_the_names_that_the_client_has_for_them(room: Room) -> None:
    files = {"model": ("sub/my churn.onnx", b"x"), "evaluation": ("C:\\held_out.npz", b"x")}
    async with room.serve(REFUSES_ITS_FILES) as client:
        started = await client.post("/v1/models", data=FORM, files=files)
        operation = await finished(client, started)
    assert operation["progress"]["message"] == "checking my churn.onnx"
    assert operation["error"]["error"] == (
        "mlp-v1: my churn.onnx: not as my churn.onnx or held_out.npz, nor modelless/model.onnx or"
        " my-model.onnx"
    )


@pytest.mark.parametrize(
    ("form", "files", "status", "error"),
    [
        (FORM, {"model": b"x"}, 400, "the form lacks the file 'evaluation'"),
        (FORM, {"evaluation": b"x"}, 400, "the form lacks the file 'model'"),
        ({"name": "mlp"}, FILES, 400, "the form lacks the field 'task'"),
        (
            FORM | {"name": "--help"},
            FILES,
            400,
            "'--help' cannot be the name of a model: names have up to 128 of a-z, 0-9, '.', '_'"
            " and '-', and begin with a letter or a digit",
        ),
        (
            FORM | {"force": "1"},
            FILES,
            400,
            "the form has an unknown field 'force'; there are: "
            "accuracy, axis_sizes, batch_axes, calibration, cast_float16, cost, evaluation, "
            "fix_inputs, free_batch, fresh, image_mean, image_std, input_names, keep_outputs, "
            "labels, latency_ms, lengths, measure, metric, model, name, output_names, pad, "
            "prefer, quick, stage, task, text_inputs, tokenizer, training, variants",
        ),
        (
            FORM | {"fresh": "yes"},
            FILES,
            400,
            "the form's field 'fresh' is true or false, not 'yes'",
        ),
        (
            FORM | {"labels": "@/etc/passwd"},
            FILES,
            400,
            "the form's field 'labels' must list the labels, separated by commas",
        ),
        (
            FORM,
            FILES | {"model": b"x" * (2**20 + 1)},
            413,
            "the file 'model' is larger than 1 MiB",
        ),
        (FORM | {"metric": "top1\0"}, FILES, 400, "the form's field 'metric' has a zero byte"),
        (FORM | {"labels": "x" * 70_000}, FILES, 413, "the form's field 'labels' is too long"),
    ],
)
async def test_a_wrong_form_is_refused_and_leaves_nothing(
    room: Room, form: dict[str, str], files: dict[str, bytes], status: int, error: str
) -> None:
    async with room.serve(SUCCEEDS) as client:
        reply = await post(client, form, files)

    assert (reply.status_code, reply.json()["error"]) == (status, error)
    assert room.uploads() == []
    assert room.live.operations == {}


@pytest.mark.parametrize(
    ("content_type", "body", "error"),
    [
        ("application/json", b"{}", "the body must be multipart/form-data with a boundary"),
        ("multipart/form-data", b"", "the body must be multipart/form-data with a boundary"),
        ("multipart/form-data; boundary=b", b"", "the form ends too early"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="task"\r\n\r\ndigi',
            "the form ends too early",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nx\r\n--b--\r\n',
            "the form's field 'model' must be a file",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="task"\r\n\r\nx\r\n'
            b'--b\r\nContent-Disposition: form-data; name="task"\r\n\r\nx\r\n--b--\r\n',
            "the form has the field 'task' twice",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="task"\r\n\r\n\xff\r\n--b--\r\n',
            "the form's field 'task' is not UTF-8",
        ),
    ],
)
async def test_a_body_that_is_no_form_is_refused(
    room: Room, content_type: str, body: bytes, error: str
) -> None:
    async with room.serve(SUCCEEDS) as client:
        reply = await client.post(
            "/v1/models", content=body, headers={"content-type": content_type}
        )

    assert (reply.status_code, reply.json()["error"]) == (400, error)
    assert room.uploads() == []


async def test_a_file_name_is_never_a_path(room: Room) -> None:
    files = {"model": ("../../../evil", b"onnx bytes"), "evaluation": ("/etc/passwd", b"npz bytes")}
    async with room.serve(SUCCEEDS) as client:
        started = await client.post("/v1/models", data=FORM, files=files)
        operation = await finished(client, started)

    assert operation["result"]["model"] == "onnx bytes"
    written = {path.name for path in room.tmp_path.rglob("*") if path.is_file()}
    assert written <= {"child.py"}


async def test_an_upload_that_breaks_off_leaves_nothing(room: Room) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\nxxxx'
        raise ClientDisconnect

    async with room.serve(SUCCEEDS) as client:
        assert room.registrations is not None
        for _ in range(3):
            with pytest.raises(ClientDisconnect):
                await room.registrations.start(pieces(), "multipart/form-data; boundary=b")
        assert room.uploads() == []
        again = await finished(client, await post(client))

    assert again["state"] == "succeeded"


class Dripping:
    """A form that comes in pieces, when it is told to."""

    def __init__(self) -> None:
        self.more: asyncio.Queue[bytes] = asyncio.Queue()

    async def pieces(self) -> AsyncIterator[bytes]:
        while piece := await self.more.get():
            yield piece

    def send(self, **fields: str) -> None:
        """The whole form."""
        files = {"model": "x", "evaluation": "y"}
        for name, value in (FORM | files | fields).items():
            ending = f'; filename="{name}"' if name in files else ""
            head = f'--b\r\nContent-Disposition: form-data; name="{name}"{ending}\r\n\r\n'
            self.more.put_nowait(f"{head}{value}\r\n".encode())
        self.more.put_nowait(b"--b--\r\n")
        self.more.put_nowait(b"")


MULTIPART = "multipart/form-data; boundary=b"


async def test_uploads_that_have_not_come_take_no_place(room: Room) -> None:
    async with room.serve(SUCCEEDS) as client:
        assert room.registrations is not None
        forms = [Dripping() for _ in range(5)]
        uploads = [
            asyncio.create_task(room.registrations.start(form.pieces(), MULTIPART))
            for form in forms
        ]
        await asyncio.sleep(0.05)
        operation = await finished(client, await post(client))
        for form in forms:
            form.send()
        started = [await upload for upload in uploads]

        def states() -> list[str]:
            return [room.live.operations[one["id"]]["state"] for one in started]

        async with asyncio.timeout(120):
            while room.uploads() or "running" in states():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert operation["state"] == "succeeded"
    assert states() == ["succeeded"] * 5


async def test_what_has_come_waits_for_a_place_and_is_ended_with_the_gateway(room: Room) -> None:
    async with room.serve(SLEEPS):
        assert room.registrations is not None
        forms = [Dripping() for _ in range(3)]
        uploads = [
            asyncio.create_task(room.registrations.start(form.pieces(), MULTIPART))
            for form in forms
        ]
        await asyncio.sleep(0.05)
        for form in forms:
            form.send()
        started = [await upload for upload in uploads]
        await room.registrations.close()
        states = [room.live.operations[one["id"]]["state"] for one in started]

    assert states == ["failed"] * 3
    assert room.uploads() == []


async def test_one_that_has_only_just_been_accepted_is_ended_with_the_gateway(room: Room) -> None:
    """Its task has not taken its first step when the gateway closes."""
    async with room.serve(SLEEPS):
        assert room.registrations is not None
        form = Dripping()
        form.send()
        started = await room.registrations.start(form.pieces(), MULTIPART)
        await room.registrations.close()

    assert room.live.operations[started["id"]]["state"] == "failed"
    assert room.uploads() == []


async def test_one_accepted_while_the_gateway_closes_is_ended_with_it(room: Room) -> None:
    """The gateway closes between storing the operation and starting the work."""
    async with room.serve(SLEEPS):
        registrations = room.registrations
        assert registrations is not None
        put = room.live.put_operation

        async def slow_put(id: str, body: Mapping[str, Any], /) -> None:
            await put(id, body)
            await registrations.close()

        form = Dripping()
        form.send()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room.live, "put_operation", slow_put)
            started = await registrations.start(form.pieces(), MULTIPART)
            patch.undo()
            async with asyncio.timeout(120):
                while room.live.operations[started["id"]]["state"] == "running":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    assert room.live.operations[started["id"]]["state"] == "failed"
    assert room.uploads() == []


async def test_uploads_share_the_room_on_disk(room: Room) -> None:
    """Of two of the largest forms, here 3,204 MiB; what a header says is not kept for it."""
    length = 1700 * 2**20
    async with room.serve(SUCCEEDS) as client:
        assert room.registrations is not None
        spool = room.registrations._spool
        form = Dripping()
        form.send()
        await room.registrations.start(form.pieces(), MULTIPART, length)
        spool.take(length)
        with pytest.raises(RateLimited, match="uploads fill the 3,204 MiB that are kept for them"):
            await room.registrations.start(Dripping().pieces(), MULTIPART, length)
        spool.take(3204 * 2**20 - length - 1000)
        over = Dripping()
        over.send(labels="a," * 1000)
        with pytest.raises(RateLimited):
            await room.registrations.start(over.pieces(), MULTIPART)
        spool.give_back(3204 * 2**20 - 1000)
        operation = await finished(client, await post(client))
        async with asyncio.timeout(120):
            while room.uploads():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert operation["state"] == "succeeded"
    assert spool.has_room(3204 * 2**20)


async def test_what_a_killed_gateway_left_long_ago_is_removed(room: Room) -> None:
    left = room.settings.state_dir / "uploads" / "left"
    left.mkdir(parents=True)
    (left / "model").write_bytes(b"x")
    os.utime(left, (0, 0))
    async with room.serve(SUCCEEDS) as client:
        await finished(client, await post(client))

    assert room.uploads() == []
