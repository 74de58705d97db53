"""Registrations over REST: an upload, then a child process of the same command line.

Building and measuring variants imports heavy libraries and takes the processor for a while, so it
never happens inside the gateway. The child is ``modelless register ... -o json --progress json``
with the same settings; its progress lines become the operation that the caller polls.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from controlplane.http_errors import error_body
from controlplane.registry.child_process import COMMAND_LINE, settings_environment
from controlplane.registry.over_rest.outcomes import REGISTERED, failed
from controlplane.registry.over_rest.progress import run_child
from controlplane.registry.over_rest.uploads import (
    FIELDS,
    ROWS,
    SWITCHES,
    TOKENIZER,
    Form,
    Spool,
    Upload,
    largest_form,
    receive_form,
    register_arguments,
)
from controlplane.settings import Settings
from controlplane.timestamps import StampAges, timestamp
from variants.disk import full_disk_explained
from variants.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidInput,
    ModellessError,
    NotFound,
    RateLimited,
    ReplicaLost,
    StateUnavailable,
)
from variants.texts.inputs import MOST_BYTES

log = logging.getLogger(__name__)

AT_ONCE = 2
WAITING = 8
"""Registrations that wait for a place, with their form on disk."""
LONGEST_S = 3_600.0
"""How long a form may take to come."""
SILENT_S = 3_600.0
"""How long a registration may tell of nothing new, four times what a model may take for one step;
while it goes on it may take as long as it needs."""
BEAT_S = 5.0
AGAIN_S = 1.0
"""After so long the outcome is stored again that could not be."""
STALE_S = 30.0
"""A gateway that has not said for so long that an operation still runs is gone."""
EVALUATION_MIB = 512
SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "model": (".onnx", ".pt2"),
    TOKENIZER: (".json",),
    **dict.fromkeys(ROWS, (".npz", ".csv", ".tsv", ".jsonl")),
}
"""Endings that files keep."""
END = ":end"
"""Behind an operation's id, where the gateway that runs it looks whether it is to end."""
ENDED = "it was ended on demand; what was built and measured until then is kept for another try"
LOST = (
    "the gateway that ran this registration has stopped; register again, which goes on from what"
    " was built and measured"
)


class Operations(Protocol):
    """Where the state of operations is kept, for every gateway to read."""

    async def operation(self, id: str, /) -> Mapping[str, Any] | None:
        """The operation, or None when there is none or it has expired."""

    async def all_operations(self) -> Mapping[str, Mapping[str, Any]]:
        """All that have not expired, by their ids."""

    async def put_operation(self, id: str, body: Mapping[str, Any], /) -> None:
        """Store an operation as plain JSON values, for at least an hour."""


class Registrations:
    """Runs at most ``AT_ONCE`` registrations; one for each gateway process.

    A form is received before it takes one of these places: a slow client keeps no other out.
    What has been received waits for a place. Everything together has room on disk for the largest
    forms of ``AT_ONCE`` registrations.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        operations: Operations,
        command: Sequence[str] = COMMAND_LINE,
        silent_s: float = SILENT_S,
        ages: StampAges | None = None,
    ) -> None:
        self._settings = settings
        self._operations = operations
        self._command = tuple(command)
        self._silent_s = silent_s
        self._ages = ages or StampAges()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._spool = Spool(AT_ONCE * largest_form(self._limits()))
        self._tasks: set[asyncio.Task[None]] = set()
        self._children: dict[str, asyncio.Task[dict[str, Any]]] = {}
        """By their operations."""
        self._progress: dict[str, dict[str, Any]] = {}
        """What they have told last."""
        self._ended: set[str] = set()
        """Operations that somebody wanted to end."""
        self._closed = False

    async def start(
        self, stream: AsyncIterator[bytes], content_type: str, length: int = 0
    ) -> dict[str, Any]:
        """Receive the form, start the child and return the operation.

        Args:
            length: of the body, as its headers say; 0 where they do not.

        Raises:
            RateLimited: enough registrations are running, or uploads fill the room for them.
            InvalidInput, PayloadTooLarge: the form is refused; nothing is left of it.
            StateUnavailable: the operation could not be stored, or the disk is full.
        """
        self._refuse_at(AT_ONCE)
        self._spool.take(length)  # asked for now, and kept only as it comes
        self._spool.give_back(length)
        upload = Upload(self._spool)
        try:
            with full_disk_explained():
                upload.directory = await asyncio.to_thread(self._make_directory)
                form = upload.form = await self._receive(stream, content_type, upload)
            arguments = register_arguments(form)
            self._refuse_at(AT_ONCE + WAITING)
            operation = _new_operation(form)
            await self._operations.put_operation(operation["id"], operation)
        except BaseException:
            await upload.remove()
            raise
        task = asyncio.create_task(self._run(dict(operation), arguments, upload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return operation

    def _refuse_at(self, limit: int) -> None:
        if len(self._tasks) >= limit or self._closed:
            raise RateLimited(
                f"{AT_ONCE} registrations are running; try again when one is done: GET"
                " /v1/operations lists them"
            )

    async def _receive(
        self, stream: AsyncIterator[bytes], content_type: str, upload: Upload
    ) -> Form:
        assert upload.directory is not None
        try:
            async with asyncio.timeout(LONGEST_S):
                return await receive_form(
                    stream,
                    content_type=content_type,
                    directory=upload.directory,
                    file_limits=self._limits(),
                    suffixes=SUFFIXES,
                    field_names=frozenset({"task", "name", *SWITCHES, *FIELDS}),
                    admit=upload.take,
                )
        except TimeoutError as error:
            raise InvalidInput(f"the form takes longer than {LONGEST_S:,g} s to come") from error

    async def read(self, id: str) -> dict[str, Any]:
        """The operation's state.

        Raises:
            NotFound: there is none of that id, or it is over for long.
        """
        found = None if id.endswith(END) else await self._operations.operation(id)
        if found is None:
            raise NotFound(f"there is no operation {id[:128]!r}")
        return self._as_now(found)

    async def all(self) -> list[dict[str, Any]]:
        """Those of the last day, the newest first."""
        found = await self._operations.all_operations()
        known = (self._as_now(one) for id, one in found.items() if not id.endswith(END))
        return sorted(known, key=lambda one: str(one["created_at"]), reverse=True)

    def _as_now(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """An operation as it was stored, or lost with the gateway that ran it."""
        operation = dict(found)
        if operation["state"] != "running":
            return operation
        told_s = datetime.fromisoformat(operation["updated_at"]).timestamp()
        if self._ages.age_s(operation["id"], told_s) > STALE_S:
            lost = ReplicaLost(LOST)
            operation |= {"state": "failed", "error": error_body(lost, operation["id"])}
        return operation

    async def end(self, id: str) -> dict[str, Any]:
        """Have a registration end, whichever gateway runs it; return its state until then.

        Raises:
            NotFound: there is none of that id, or it is over for long.
            Conflict: it is over.
        """
        operation = await self.read(id)
        if operation["state"] != "running":
            raise Conflict(f"the operation is over: it has {operation['state']}")
        await self._operations.put_operation(id + END, {"id": id, "updated_at": timestamp()})
        self._end(id)
        return operation

    def _end(self, id: str) -> None:
        """End a child, unless it has registered already and is about to say so."""
        child = self._children.get(id)
        over = self._progress.get(id, {}).get("message") == REGISTERED
        if child is not None and id not in self._ended and not over:
            self._ended.add(id)
            child.cancel()

    async def close(self) -> None:
        """End all children and wait until nothing is left of them."""
        self._closed = True
        for child in list(self._children.values()):
            child.cancel()  # and not the tasks around them, which still have to leave the outcome
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _limits(self) -> dict[str, int]:
        data = EVALUATION_MIB * 2**20
        model = int(self._settings.max_model_mib * 2**20)
        return {"model": model, TOKENIZER: MOST_BYTES} | dict.fromkeys(ROWS, data)

    def _make_directory(self) -> Path:
        """A fresh directory; those that a killed gateway left behind long ago are removed."""
        uploads = self._settings.state_dir / "uploads"
        uploads.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in uploads.iterdir():
            with contextlib.suppress(OSError):
                if left.stat().st_mtime < time.time() - 2 * LONGEST_S:
                    shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=uploads))

    async def _run(
        self, operation: dict[str, Any], arguments: Sequence[str], upload: Upload
    ) -> None:
        """Run the child to its end, whatever that is, and leave the outcome behind."""
        beat = asyncio.create_task(self._beat(operation, upload))
        child = asyncio.create_task(self._in_turn(operation, arguments, upload))
        self._children[operation["id"]] = child
        if self._closed:  # while the operation was being stored
            child.cancel()
        try:
            outcome = await child
        except TimeoutError:
            outcome = {"state": "failed", "error": error_body(self._stuck(), operation["id"])}
        except asyncio.CancelledError:
            outcome = failed("REPLICA_LOST", "the gateway was stopped meanwhile", operation)
            if operation["id"] in self._ended:
                outcome = failed("CONFLICT", ENDED, operation)
        except Exception as error:
            if not isinstance(error, ModellessError):
                log.exception("request %s failed", operation["id"])
            outcome = {"state": "failed", "error": error_body(error, operation["id"])}
        finally:
            del self._children[operation["id"]]
            self._progress.pop(operation["id"], None)
            self._ended.discard(operation["id"])
            beat.cancel()
            await upload.remove()
        try:
            await self._leave(operation | outcome)
        except StateUnavailable:  # the gateway stops: others take the registration to be lost
            pass
        except Exception:
            log.exception("request %s: what became of it cannot be stored", operation["id"])

    async def _leave(self, outcome: dict[str, Any]) -> None:
        """Store an outcome, as soon as the live state is there: without it the registration would
        be taken for one that was lost with its gateway. A gateway that stops tries it once."""
        while True:
            try:
                return await self._store(outcome)
            except StateUnavailable:
                if self._closed:
                    raise
            await asyncio.sleep(AGAIN_S)

    async def _in_turn(
        self, operation: dict[str, Any], arguments: Sequence[str], upload: Upload
    ) -> dict[str, Any]:
        """Run the child when there is a place for it.

        Raises:
            TimeoutError: it told of nothing new for too long.
        """
        assert upload.directory is not None
        async with self._places, asyncio.timeout(self._silent_s) as silence:

            def heard() -> None:
                silence.reschedule(asyncio.get_running_loop().time() + self._silent_s)
                self._progress[operation["id"]] = operation["progress"]

            return await run_child(
                (*self._command, *arguments),
                os.environ | child_environment(self._settings, upload.directory),
                operation,
                upload,
                self._store,
                heard,
            )

    def _stuck(self) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"it told of nothing new for {self._silent_s:,g} s and was ended; what was built and"
            " measured until then is kept for another try"
        )

    async def _beat(self, operation: dict[str, Any], upload: Upload) -> None:
        """Say that it still runs, and see whether it is to end; a state that is gone for a moment
        does not end the work."""
        assert upload.directory is not None
        while True:
            await asyncio.sleep(BEAT_S)
            with contextlib.suppress(Exception):
                os.utime(upload.directory)  # or it would be taken for one that was left behind
                await self._store(operation)
                if await self._operations.operation(operation["id"] + END) is not None:
                    self._end(operation["id"])

    async def _store(self, operation: dict[str, Any]) -> None:
        operation["updated_at"] = timestamp()
        await self._operations.put_operation(operation["id"], operation)


def child_environment(settings: Settings, directory: Path) -> dict[str, str]:
    """The same settings for the child, and a temporary directory that goes with the upload."""
    return settings_environment(settings) | {"TMPDIR": str(directory)}


def _new_operation(form: Form) -> dict[str, Any]:
    now = timestamp()
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
