"""Parts of paths that several routes have, what is said of a worker that is none, and what may
stand behind the question mark."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated

from fastapi import Path, Request

from planner.sentences import there_are
from variants.errors import InvalidInput, NotFound

TaskPath = Annotated[str, Path(description="Name of a task.", examples=["digits"])]
ModelPath = Annotated[str, Path(description="Name of a model.", examples=["cnn-small"])]
VersionPath = Annotated[int, Path(ge=1, le=2**31 - 1, description="Number of a version.")]
WorkerPath = Annotated[
    str, Path(description="Name of a worker.", examples=["cpu-4-x2d1"], max_length=256)
]


def no_worker(worker: str, known: Iterable[str], also: str = "") -> NotFound:
    """The error of who names a worker that is not there: it says which there are.

    Args:
        also: what else is missing, which follows the worker's name.
    """
    return NotFound(
        f"there is no worker {worker[:256]!r}{also}{there_are(known, worker) or '; none is there'}"
    )


async def known_parameters(request: Request) -> None:
    """Refuse a query parameter that the route does not read: whoever sent it would take the answer
    for one that is limited by it.

    Raises:
        InvalidInput: there is one; the nearest known one is named.
    """
    known = sorted(field.alias for field in request.scope["route"].dependant.query_params)
    for name in request.query_params:
        if name in known:
            continue
        where = f"{request.method} {request.url.path}"
        if not known:
            raise InvalidInput(f"{where} has no parameter {name[:40]!r}, and none at all")
        near = get_close_matches(name, known, n=1)
        advice = f"did you mean {near[0]!r}? Known are: " if near else "known are: "
        raise InvalidInput(f"{where} has no parameter {name[:40]!r}; {advice}{', '.join(known)}")
