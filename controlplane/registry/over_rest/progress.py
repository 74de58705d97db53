"""One registration in a child process, whose lines of progress become the operation's."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.registry.child_process import (
    end_group,
    json_object,
    lines_of,
    read_all,
    start_group,
)
from controlplane.registry.over_rest.outcomes import outcome_of
from controlplane.registry.over_rest.uploads import Upload
from variants.errors import Internal, StateUnavailable

log = logging.getLogger(__name__)

KEPT_BYTES = 1024 * 1024
"""Most bytes of the child's output that are kept; a result takes a few KiB."""
KEPT_LINES = 20
"""The last lines that are no progress: what the child says before it fails."""
MOST_LOGGED = 4_000
"""Characters of what a child says last before it fails in a way that nobody foresaw."""
STORED_EVERY = timedelta(seconds=0.25)
"""Progress within a step is stored no more often."""


async def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    operation: dict[str, Any],
    upload: Upload,
    store: Callable[[dict[str, Any]], Awaitable[None]],
    heard: Callable[[], None],
) -> dict[str, Any]:
    """Run the command to its end, and return the outcome as fields of the operation.

    Where it is cancelled, the child and all that it has started are ended.

    Args:
        operation: whose progress is set meanwhile, by the names that the client has for files.
        store: keeps the operation where callers poll it.
        heard: called with each step of progress that is another one.
    """
    child = await start_group(*command, env=environment)
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        output, errors = await asyncio.gather(
            read_all(child.stdout, KEPT_BYTES),
            _follow(child.stderr, operation, upload, store, heard),
        )
        code = await child.wait()
    finally:
        await end_group(child)
    outcome = outcome_of(code, output, errors, operation)
    if error := outcome.get("error"):
        if error["code"] == Internal.code:
            said = "\n".join(errors)[-MOST_LOGGED:] or "it said nothing"
            id_, subject = operation["id"], operation["subject"]
            log.error("request %s: registering %s ended with %d: %s", id_, subject, code, said)
        error["error"] = upload.as_called(error["error"])
    return outcome


async def _follow(
    stream: asyncio.StreamReader,
    operation: dict[str, Any],
    upload: Upload,
    store: Callable[[dict[str, Any]], Awaitable[None]],
    heard: Callable[[], None],
) -> list[str]:
    """Turn progress lines into the operation's progress; return the last lines that are not."""
    others: list[str] = []
    async for line in lines_of(stream):
        step = json_object(line)
        if step is None or "error" in step:
            others = [*others, line][-KEPT_LINES:]
            continue
        if "message" in step:
            step["message"] = upload.as_called(str(step["message"]))
        before, operation["progress"] = operation["progress"], step
        if step != before:
            heard()
        stored_ago = datetime.now(UTC) - datetime.fromisoformat(operation["updated_at"])
        if before.get("step") != step.get("step") or stored_ago > STORED_EVERY:
            with contextlib.suppress(StateUnavailable):  # a later step may be told
                await store(operation)
    return others
