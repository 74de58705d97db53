"""Registrations over REST: an upload, then a child process of the same command line.

Building and measuring variants imports heavy libraries and takes the processor for a while, so it
never happens inside the gateway. The child is ``modelless register ... -o json --progress json``
with the same settings; its progress lines become the operation that the caller polls.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import orjson

from controlplane.http_errors import error_body
from controlplane.settings import Settings
from controlplane.uploads import Form, receive_form
from variants.errors import InvalidInput, NotFound, RateLimited, ReplicaLost
from variants.types import NAME

AT_ONCE = 2
LONGEST_S = 3_600.0
BEAT_S = 5.0
STALE = timedelta(seconds=30)
EVALUATION_MIB = 512
_KEPT_BYTES = 1024 * 1024
"""Of the child's output; a result is a few KiB."""

ROWS = ("evaluation", "calibration", "training")
"""Files of rows."""
FIELDS = (
    "labels",
    "stage",
    "metric",
    "latency_ms",
    "accuracy",
    "cost",
    "prefer",
    "variants",
    "measure",
)
"""Optional fields of the form, each an option of the same name."""


class Operations(Protocol):
    """Where the state of operations is kept, for every gateway to read."""

    async def operation(self, id: str, /) -> Mapping[str, Any] | None:
        """The operation, or None when there is none or it has expired."""

    async def put_operation(self, id: str, body: Mapping[str, Any], /) -> None:
        """Store an operation as plain JSON values, for at least an hour."""


class Registrations:
    """Runs at most ``AT_ONCE`` registrations; one for each gateway process."""

    def __init__(
        self,
        *,
        settings: Settings,
        operations: Operations,
        command: Sequence[str] = (sys.executable, "-m", "controlplane.cli.main"),
    ) -> None:
        self._settings = settings
        self._operations = operations
        self._command = tuple(command)
        self._busy = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self, stream: AsyncIterator[bytes], content_type: str) -> dict[str, Any]:
        """Receive the form, start the child and return the operation.

        Raises:
            RateLimited: enough registrations are running.
            InvalidInput, PayloadTooLarge: the form is refused; nothing is left of it.
            StateUnavailable: the operation could not be stored.
        """
        if self._busy >= AT_ONCE or self._closed:
            raise RateLimited(f"{AT_ONCE} registrations are running; try again when one is done")
        self._busy += 1
        directory: Path | None = None
        try:
            directory = await asyncio.to_thread(self._make_directory)
            form = await receive_form(
                stream,
                content_type=content_type,
                directory=directory,
                file_limits=self._limits(),
                suffixes={"model": (".onnx", ".pt2")} | dict.fromkeys(ROWS, (".npz",)),
                field_names=frozenset({"task", "name", *FIELDS}),
            )
            arguments = register_arguments(form)
            operation = _new_operation(form)
            await self._operations.put_operation(operation["id"], operation)
        except BaseException:
            await self._release(directory)
            raise
        task = asyncio.create_task(self._run(dict(operation), arguments, directory))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return operation

    async def read(self, id: str) -> dict[str, Any]:
        """The operation's state.

        Raises:
            NotFound: there is none of that id, or it is over for long.
        """
        found = await self._operations.operation(id)
        if found is None:
            raise NotFound(f"there is no operation {id!r}")
        operation = dict(found)
        silent = datetime.now(UTC) - datetime.fromisoformat(operation["updated_at"])
        if operation["state"] == "running" and silent > STALE:
            lost = ReplicaLost("the gateway that ran this registration has stopped; register again")
            operation |= {"state": "failed", "error": error_body(lost, id)}
        return operation

    async def close(self) -> None:
        """End all children and wait until nothing is left of them."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _limits(self) -> dict[str, int]:
        data = EVALUATION_MIB * 2**20
        model = int(self._settings.max_model_mib * 2**20)
        return {"model": model} | dict.fromkeys(ROWS, data)

    def _make_directory(self) -> Path:
        """A fresh directory; those that a killed gateway left behind long ago are removed."""
        uploads = self._settings.state_dir / "uploads"
        uploads.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in uploads.iterdir():
            with contextlib.suppress(OSError):
                if left.stat().st_mtime < time.time() - 2 * LONGEST_S:
                    shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=uploads))

    async def _release(self, directory: Path | None) -> None:
        self._busy -= 1
        if directory is not None:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))

    async def _run(
        self, operation: dict[str, Any], arguments: Sequence[str], directory: Path
    ) -> None:
        """Run the child to its end, whatever that is, and leave the outcome behind."""
        try:
            async with asyncio.timeout(LONGEST_S):
                outcome = await self._child(operation, arguments, directory)
        except TimeoutError:
            outcome = _failed("INVALID_INPUT", f"it took longer than {LONGEST_S:g} s", operation)
        except asyncio.CancelledError:
            outcome = _failed("REPLICA_LOST", "the gateway was stopped meanwhile", operation)
        except Exception as error:
            outcome = {"state": "failed", "error": error_body(error, operation["id"])}
        finally:
            await self._release(directory)
        # The outcome is worth a last try even while the application is closing down.
        with contextlib.suppress(Exception):
            await self._store(operation | outcome)

    async def _child(
        self, operation: dict[str, Any], arguments: Sequence[str], directory: Path
    ) -> dict[str, Any]:
        child = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            env=os.environ | child_environment(self._settings, directory),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        beat = asyncio.create_task(self._beat(operation))
        try:
            output, errors = await asyncio.gather(
                _read_all(child.stdout), self._follow(operation, child.stderr)
            )
            code = await child.wait()
        finally:
            beat.cancel()
            await _end_group(child)
        return _outcome(code, output, errors, operation)

    async def _follow(self, operation: dict[str, Any], stream: asyncio.StreamReader) -> list[str]:
        """Turn progress lines into the operation's progress; return the lines that are not."""
        others: list[str] = []
        async for line in _lines(stream):
            step = _object(line)
            if step is None or "error" in step:
                others = [*others[-19:], line]
                continue
            due = operation["progress"].get("step") != step.get("step") or (
                datetime.now(UTC) - datetime.fromisoformat(operation["updated_at"])
                > timedelta(seconds=0.25)
            )
            operation["progress"] = step
            if due:
                await self._store(operation)
        return others

    async def _beat(self, operation: dict[str, Any]) -> None:
        """Say that it still runs; a state that is gone for a moment does not end the work."""
        while True:
            await asyncio.sleep(BEAT_S)
            with contextlib.suppress(Exception):
                await self._store(operation)

    async def _store(self, operation: dict[str, Any]) -> None:
        operation["updated_at"] = _now()
        await self._operations.put_operation(operation["id"], operation)


def register_arguments(form: Form) -> list[str]:
    """The child's command line. A value never becomes an option: each is joined with ``=``.

    Raises:
        InvalidInput: a file or a field is missing, or a name cannot be one.
    """
    for name in ("model", "evaluation"):
        if name not in form.files:
            raise InvalidInput(f"the form lacks the file {name!r}")
    task = form.fields.get("task", "")
    if not NAME.fullmatch(task):
        raise InvalidInput(f"the form's field 'task' is not a task name: {task!r}")
    model = form.fields.get("name", "")
    if not NAME.fullmatch(model):
        raise InvalidInput(f"the form's field 'name' is not a model name: {model!r}")
    arguments = ["register", str(form.files["model"]), f"--task={task}", f"--name={model}"]
    arguments.append(f"--evaluation={form.files['evaluation']}")
    for rows in ("calibration", "training"):
        if rows in form.files:
            arguments.append(f"--{rows}={form.files[rows]}")
    if form.fields.get("labels", "").startswith("@"):
        # On the command line this names a file; a caller from outside may not read ours.
        raise InvalidInput("the form's field 'labels' must list the labels, separated by commas")
    for field in FIELDS:
        if field in form.fields:
            arguments.append(f"--{field.replace('_', '-')}={form.fields[field]}")
    return [*arguments, "--output=json", "--progress=json"]


def child_environment(settings: Settings, directory: Path) -> dict[str, str]:
    """The same settings for the child, and a temporary directory that goes with the upload."""
    values = settings.model_dump(mode="json")
    return {f"MODELLESS_{name.upper()}": str(value) for name, value in values.items()} | {
        "TMPDIR": str(directory)
    }


def _new_operation(form: Form) -> dict[str, Any]:
    now = _now()
    return {
        "id": secrets.token_hex(16),
        "kind": "register",
        "state": "running",
        "subject": f"{form.fields['task']}/{form.fields['name']}",
        "progress": {},
        "result": None,
        "error": None,
        "created_at": now,
        "updated_at": now,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _failed(code: str, message: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    error = {"error": message, "code": code, "retryable": False, "request_id": operation["id"]}
    return {"state": "failed", "error": error}


def _outcome(
    code: int, output: bytes, errors: Sequence[str], operation: Mapping[str, Any]
) -> dict[str, Any]:
    """Success with the child's result, or its typed error, or an internal one."""
    result = _object(output.decode("utf-8", "replace"))
    if code == 0 and result is not None and "error" not in result:
        return {"state": "succeeded", "result": result}
    told = [found for line in errors if (found := _object(line)) and "error" in found]
    if result is not None and "error" in result:
        told.append(result)
    if told:
        error = told[-1]
        return _failed(str(error.get("code", "INVALID_INPUT")), str(error["error"]), operation)
    if code == 2 and errors:
        return _failed(
            "INVALID_INPUT", errors[-1].removeprefix("Error: ").removeprefix("error: "), operation
        )
    return _failed("INTERNAL", "internal error", operation)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, or None."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of any length; what is beyond 64 KiB of one is dropped."""
    rest = b""
    while piece := await stream.read(65_536):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield line.decode("utf-8", "replace").strip()
        rest = rest[:65_536]
    if rest.strip():
        yield rest.decode("utf-8", "replace").strip()


async def _read_all(stream: asyncio.StreamReader) -> bytes:
    """All of it, of which the first part is kept, so that the child never waits for us."""
    kept = b""
    while piece := await stream.read(65_536):
        kept += piece[: _KEPT_BYTES - len(kept)]
    return kept


async def _end_group(child: asyncio.subprocess.Process) -> None:
    """End the child and whatever it started: asked first, then killed."""
    for number, wait_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        if child.returncode is not None and number is signal.SIGTERM:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), wait_s)
