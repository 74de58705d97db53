"""Rebuilding beside the control loop: what a worker finds damaged is repaired in a child process.

Building imports heavy libraries and takes the processor for a while, so the child is
``modelless repair TASK VARIANT -o json`` with the same settings. Each damage is tried once; what
came of it is an event. The worker sees the file change, and the next tick loads the variant again.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence

from controlplane.registry.child_process import (
    COMMAND_LINE,
    end_group,
    json_object,
    settings_environment,
    start_group,
)
from controlplane.settings import Settings

log = logging.getLogger(__name__)

LONGEST_S = 1_800.0
KEPT_BYTES = 1 << 20

Tell = Callable[[str, str, str], None]
"""Keeps an event: kind, subject, message."""


class Rebuilds:
    """At most one child at a time."""

    def __init__(
        self,
        settings: Settings,
        tell: Tell,
        *,
        command: Sequence[str] = COMMAND_LINE,
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._command = tuple(command)
        self._tried: dict[str, str] = {}
        self._running: asyncio.Task[None] | None = None

    def look(self, damaged: Mapping[str, str]) -> None:
        """Begin to rebuild one that was not tried yet; ``damaged`` are ``task/variant`` and why.

        What is damaged no more is forgotten, so that the next damage is repaired as well.
        """
        self._tried = {name: why for name, why in self._tried.items() if name in damaged}
        if self._running is not None:
            if not self._running.done():
                return
            self._running = None
        for name in sorted(damaged):
            if self._tried.get(name) != damaged[name]:
                self._tried[name] = damaged[name]
                self._running = asyncio.create_task(self._rebuild(name))
                return

    async def close(self) -> None:
        """End the child."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _rebuild(self, name: str) -> None:
        task, _, variant = name.partition("/")
        try:
            async with asyncio.timeout(LONGEST_S):
                output, said = await self._child(task, variant)
        except TimeoutError:
            self._tell("rebuild_failed", name, f"it took longer than {LONGEST_S:,g} s")
            return
        except OSError as error:
            self._tell("rebuild_failed", name, f"it could not be started: {error.strerror}")
            return
        self._tell(*outcome(name, output, said))

    async def _child(self, task: str, variant: str) -> tuple[bytes, bytes]:
        """Run the child; returns what it printed on standard output and on standard error."""
        child = await start_group(
            *self._command, "repair", "--output=json", "--progress=none", "--", task, variant,
            env=os.environ | settings_environment(self._settings),
        )  # fmt: skip
        try:
            return await child.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                await asyncio.shield(end_group(child))


def outcome(name: str, output: bytes, said: bytes) -> tuple[str, str, str]:
    """The event that a child's output amounts to: kind, subject, message."""
    found = json_object(output)
    if found is None or not isinstance(found.get("repairs"), list):
        error = json_object(said[-KEPT_BYTES:].strip().rpartition(b"\n")[2]) or {}
        why = error.get("error") or "the process ended early; the log says more"
        if not error:
            log.error("rebuilding %s: %s", name, said[-2_000:].decode(errors="replace"))
        return "rebuild_failed", name, str(why)
    if not found["repairs"]:
        return (
            "rebuild_failed", name,
            "the artifact is sound where the control loop runs; the worker reads another file",
        )  # fmt: skip
    failed = [row for row in found["repairs"] if not row["repaired"]]
    said_of = "; ".join(str(row["message"]) for row in failed or found["repairs"])
    if failed:
        return "rebuild_failed", name, said_of
    return "artifact_rebuilt", name, said_of
