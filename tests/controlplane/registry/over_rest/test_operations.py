"""Registration over REST, against a small child in the place of the command line."""

import asyncio
import os
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.registry.over_rest.operations import STALE_S, Registrations
from controlplane.settings import Settings, load_settings
from controlplane.timestamps import StampAges
from tests.controlplane.builders import DictLive, digits_catalog
from variants.artifacts.store import FileArtifactStore
from variants.errors import RateLimited

pytestmark = pytest.mark.slow

FORM = {"task": "digits", "name": "mlp"}
FILES = {"model": b"onnx bytes", "evaluation": b"npz bytes"}

SUCCEEDS = """
    import json, os, sys
    arguments = sys.argv[1:]
    print(json.dumps({"step": "check", "message": "mlp"}), file=sys.stderr, flush=True)
    print("a warning of some library", file=sys.stderr, flush=True)
    evaluation = next(a for a in arguments if a.startswith("--evaluation="))
    print(json.dumps({
        "arguments": [a for a in arguments if "/" not in a],
        "model": open(arguments[1]).read(),
        "evaluation": open(evaluation.split("=", 1)[1]).read(),
        "state_dir": os.environ["MODELLESS_STATE_DIR"],
    }))
"""
REFUSES = """
    import json, sys
    print("noise", file=sys.stderr)
    error = {"error": "the model has no input 'pixels'", "code": "INVALID_INPUT"}
    print(json.dumps(error), file=sys.stderr)
    sys.exit(2)
"""
REFUSES_ITS_FILES = """
    import json, os, sys
    model = sys.argv[2]
    name = os.path.basename(model)
    print(json.dumps({"step": "check", "message": f"checking {name}"}), file=sys.stderr, flush=True)
    error = f"mlp-v1: {name}: not as {model} or evaluation.npz, nor modelless/{name} or my-{name}"
    print(json.dumps({"error": error, "code": "INVALID_INPUT"}), file=sys.stderr)
    sys.exit(2)
"""
CRASHES = "import os, sys; print('no luck', file=sys.stderr, flush=True); os.abort()"
SLEEPS = """
    import os, pathlib, subprocess, sys, time
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(os.environ["MODELLESS_STATE_DIR"], "pids").write_text(
        f"{os.getpid()} {grandchild.pid}"
    )
    time.sleep(600)
"""


class Room:
    """A control API whose registrations run a given script."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.settings: Settings = load_settings(
            state_dir=tmp_path / "state", max_model_mib=1, api_token="", port=8000
        )
        self.live = DictLive()
        self.registrations: Registrations | None = None

    def serve(self, script: str, **options: Any) -> httpx.AsyncClient:
        path = self.tmp_path / "child.py"
        path.write_text(textwrap.dedent(script))
        self.registrations = Registrations(
            settings=self.settings,
            operations=self.live,
            command=(sys.executable, str(path)),
            **options,
        )
        api = build_api(
            ApiContext(
                catalog=digits_catalog(),
                store=FileArtifactStore(self.settings.artifacts_dir),
                settings=self.settings,
                live=self.live,
                registrations=self.registrations,
            )
        )
        return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost")

    def uploads(self) -> list[Path]:
        """What is left of any upload."""
        directory = self.settings.state_dir / "uploads"
        return sorted(directory.iterdir()) if directory.exists() else []


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path)
    yield room
    if room.registrations is not None:
        await room.registrations.close()


async def post(
    client: httpx.AsyncClient, form: dict[str, str] = FORM, files: dict[str, bytes] = FILES
) -> httpx.Response:
    return await client.post("/v1/models", data=form, files=files)


async def pids_written(room: Room) -> Path:
    """The file in which a child that ``SLEEPS`` has written the numbers of its processes."""
    pids = room.settings.state_dir / "pids"
    async with asyncio.timeout(120):
        while not pids.exists() or not pids.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return pids


async def finished(client: httpx.AsyncClient, started: httpx.Response) -> dict[str, Any]:
    """The operation once it is over."""
    assert started.status_code == 202, started.text
    async with asyncio.timeout(120):
        while True:
            operation = (await client.get(started.headers["location"])).json()
            if operation["state"] != "running":
                return dict(operation)
            await asyncio.sleep(0.02)


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


PLODS = """
    import json, sys, time
    for done in range(8):
        print(json.dumps({"step": "measure", "done": done}), file=sys.stderr, flush=True)
        time.sleep(0.5)
    print("{}")
"""
REPEATS = """
    import json, sys, time
    while True:
        print(json.dumps({"step": "measure", "done": 1}), file=sys.stderr, flush=True)
        time.sleep(0.2)
"""


async def test_a_registration_may_take_as_long_as_it_goes_on(room: Room) -> None:
    """One of an hour was given up. This one takes 4 s, and may be silent for 3."""
    async with room.serve(PLODS, silent_s=3.0) as client:
        operation = await finished(client, await post(client))

    assert operation["state"] == "succeeded"
    assert operation["progress"]["done"] == 7


async def test_one_that_tells_of_nothing_new_is_given_up(room: Room) -> None:
    async with room.serve(REPEATS, silent_s=3.0) as client:
        operation = await finished(client, await post(client))

    assert (operation["state"], operation["error"]["code"]) == ("failed", "DEADLINE_EXCEEDED")
    assert operation["error"]["error"].startswith("it told of nothing new for 3 s and was ended;")
    assert room.uploads() == []


async def test_a_registration_is_ended_on_demand(room: Room) -> None:
    async with room.serve(SLEEPS) as client:
        started = await post(client)
        pids = await pids_written(room)
        ended = await client.delete(started.headers["location"])
        operation = await finished(client, started)
        again = await client.delete(started.headers["location"])

    assert (ended.status_code, ended.json()["state"]) == (202, "running")
    assert (operation["state"], operation["error"]["code"]) == ("failed", "CONFLICT")
    assert operation["error"]["error"].startswith("it was ended on demand; what was built")
    assert not any(alive(int(pid)) for pid in pids.read_text().split())
    assert room.uploads() == []
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")


async def test_the_gateway_that_runs_a_registration_ends_it_for_another_one(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registry.over_rest.operations.BEAT_S", 0.1)
    async with room.serve(SLEEPS) as client:
        started = await post(client)
        running = room.registrations
        async with room.serve(SLEEPS) as other:
            assert (await other.delete(started.headers["location"])).status_code == 202
        operation = await finished(client, started)
        assert running is not None
        await running.close()

    assert (operation["state"], operation["error"]["code"]) == ("failed", "CONFLICT")


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


async def test_what_no_operation_is_cannot_be_ended_or_read(room: Room) -> None:
    async with room.serve(SUCCEEDS) as client:
        started = await post(client)
        await finished(client, started)
        room.live.operations["a:end"] = {"id": "a"}
        for id in ("none", "a:end"):
            assert (await client.delete(f"/v1/operations/{id}")).status_code == 404
            assert (await client.get(f"/v1/operations/{id}")).status_code == 404


async def test_a_third_registration_at_once_is_refused(room: Room) -> None:
    async with room.serve(SLEEPS) as client:
        first, second, third = [await post(client) for _ in range(3)]

    assert [reply.status_code for reply in (first, second, third)] == [202, 202, 429]
    assert third.json()["code"] == "RATE_LIMITED"


async def test_closing_ends_the_child_and_its_children(room: Room) -> None:
    async with room.serve(SLEEPS) as client:
        started = await post(client)
        pids = await pids_written(room)
        assert room.registrations is not None
        await room.registrations.close()
        operation = (await client.get(started.headers["location"])).json()
        late = await post(client)

    assert operation["state"] == "failed"
    assert operation["error"]["error"] == "the gateway was stopped meanwhile"
    # A child of the child has been killed, and nobody can wait for it.
    async with asyncio.timeout(30):
        while any(alive(int(pid)) for pid in pids.read_text().split()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert room.uploads() == []
    assert late.status_code == 429


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_gateway_that_went_away_fails_its_operations(room: Room) -> None:
    old = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    operation = {"id": "a", "kind": "register", "state": "running", "subject": "digits/mlp"}
    room.live.operations["a"] = operation | {"created_at": old, "updated_at": old}
    async with room.serve(SUCCEEDS) as client:
        body = (await client.get("/v1/operations/a")).json()

    assert (body["state"], body["error"]["code"]) == ("failed", "REPLICA_LOST")


async def test_a_clock_that_is_set_fails_no_operation(room: Room) -> None:
    """An hour ahead, those that run seemed to have lost their gateway until they said more; an hour
    back, those whose gateway was gone seemed to run for an hour."""
    now_s, ahead_s = 0.0, 1_000_000.0
    ages = StampAges(lambda: now_s, lambda: now_s + ahead_s)

    def told() -> dict[str, Any]:
        at = datetime.fromtimestamp(now_s + ahead_s, UTC).isoformat()
        named = {"id": "a", "kind": "register", "subject": "digits/mlp"}
        return {**named, "state": "running", "created_at": at, "updated_at": at}

    async def state() -> str:
        return str((await client.get("/v1/operations/a")).json()["state"])

    async with room.serve(SUCCEEDS, ages=ages) as client:
        for set_s in (3_600.0, -3_600.0):
            room.live.operations["a"] = told()
            assert await state() == "running"
            ahead_s, now_s = ahead_s + set_s, now_s + 4.0
            assert await state() == "running"
            [row] = (await client.get("/v1/operations")).json()["operations"]
            assert row["state"] == "running"
            now_s += STALE_S
            assert await state() == "failed"


async def test_an_unknown_operation_is_not_found(room: Room) -> None:
    async with room.serve(SUCCEEDS) as client:
        reply = await client.get("/v1/operations/none")

    assert (reply.status_code, reply.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("form", "files", "status", "error"),
    [
        (FORM, {"model": b"x"}, 400, "the form lacks the file 'evaluation'"),
        (FORM, {"evaluation": b"x"}, 400, "the form lacks the file 'model'"),
        ({"name": "mlp"}, FILES, 400, "the form's field 'task' is not a task name: ''"),
        (
            FORM | {"name": "--help"},
            FILES,
            400,
            "the form's field 'name' is not a model name: '--help'",
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
        with pytest.raises(RateLimited, match="uploads fill the 3204 MiB that are kept for them"):
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
