"""What Ray Serve says of applications that are starting, turned into one sentence each. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

REFUSED = "variants.errors.Conflict: "
"""Begins the last line of the traceback of a replica that refuses to start. Trying again, which is
what Serve does, cannot help it."""
_ERROR_CLASS = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*: ")
NO_ROOM = "to be scheduled"
"""Stands in what Serve says when no node has had room for a replica for half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """One application with its one deployment, as Serve describes it."""

    name: str
    status: str
    """One of ``ray.serve.schema.ApplicationStatus``."""
    message: str
    """What Serve says of the application, or better of its deployment."""
    running: int
    """Replicas that run."""


def failure(applications: Sequence[Starting]) -> str | None:
    """Why one of them will not start, in a sentence; None while all may."""
    for one in applications:
        if one.status in ("DEPLOY_FAILED", "UNHEALTHY") or REFUSED in one.message:
            return f"{one.name} does not start: {last_words(one.message)}"
    return None


def complaints(applications: Sequence[Starting]) -> list[str]:
    """What Serve says of those that do not run as they should, a sentence each."""
    return [
        f"{one.name}: {last_words(one.message)}"
        for one in applications
        if one.status != "RUNNING" and one.message
    ]


def is_up(applications: Sequence[Starting]) -> bool:
    """Whether all run. Replicas for which there is no room yet do not count where others run."""
    return all(
        one.status == "RUNNING" or (one.running and NO_ROOM in one.message) for one in applications
    )


def lacks_room(applications: Sequence[Starting]) -> list[str]:
    """Those that wait for a node with room for a replica of theirs."""
    return [one.name for one in applications if one.status != "RUNNING" and NO_ROOM in one.message]


def last_words(message: str) -> str:
    """What happened, without the traceback before it and the name of the error's class."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return _ERROR_CLASS.sub("", lines[-1]) if lines else "Ray Serve does not say why"
