"""Child processes of the gateway that run the command line: their settings, output and end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from controlplane.settings import Settings

COMMAND_LINE = (sys.executable, "-P", "-m", "controlplane.cli.main")
"""``modelless``, as this process has it; ``-P``: no module of the working directory is imported."""


def settings_environment(settings: Settings) -> dict[str, str]:
    """The same settings as variables of a child's environment."""
    values = settings.model_dump(mode="json")
    return {f"MODELLESS_{name.upper()}": str(value) for name, value in values.items()}


async def lines_of(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yields the lines of a stream, of any length; what is beyond 64 KiB of one is dropped."""
    rest = b""
    while piece := await stream.read(65_536):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield line.decode("utf-8", "replace").strip()
        rest = rest[:65_536]
    if rest.strip():
        yield rest.decode("utf-8", "replace").strip()


async def read_all(stream: asyncio.StreamReader, kept_bytes: int) -> bytes:
    """Read a stream to its end, so that the child never waits for its reader; returns the first
    ``kept_bytes`` of it."""
    kept = b""
    while piece := await stream.read(65_536):
        kept += piece[: kept_bytes - len(kept)]
    return kept


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object that a child has written, or None where it is none."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


async def start_group(*command: str, env: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start a command in a process group of its own, its output in pipes.

    Where that is cancelled halfway, all of the group is ended first: left to itself, asyncio ends
    the child alone and then waits for its pipes, which the child's children may hold open.

    Raises:
        OSError: it cannot be started.
    """
    start = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *command,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(start)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            await end_group(await start)
        raise


async def end_group(child: asyncio.subprocess.Process) -> None:
    """End the child and all that it has started: by SIGTERM, and after 3 s by SIGKILL."""
    for number, wait_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        if child.returncode is not None and number is signal.SIGTERM:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), wait_s)
