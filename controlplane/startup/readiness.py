"""What a gateway that may not listen yet is asked, with the standard library alone."""

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.request import BaseHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from controlplane.access.tls import trusting
from controlplane.settings import Settings

READY_S = 60.0
"""How long the first variants may take to be loaded."""
ASK_EVERY_S = 0.1
SETTLED = 30
"""So many answers without news are the end of loading: memory may not hold all variants."""


def until_loaded(
    ask: Callable[[], Sequence[Mapping[str, str]]],
    expected: int,
    tasks: Collection[str],
    stopped: Callable[[float], bool],
    patience_s: float = READY_S,
) -> int:
    """Wait until so many variants are loaded, or no more come; how many are.

    Args:
        ask: reads the gateway's index, or raises what reaching it does.
        tasks: of these variants. The index has more names: that by which all lengths of a task are
            asked, too.
        stopped: waits for so many seconds at most; whether nobody waits any more.
    """
    deadline_s = time.monotonic() + patience_s
    ready, settled, wait_s = 0, 0, 0.0
    while not stopped(wait_s) and time.monotonic() < deadline_s:
        wait_s, before = ASK_EVERY_S, ready
        try:
            index = ask()
        except (OSError, HTTPException, ValueError):
            continue
        ready = sum(row["state"] == "READY" and row["name"] in tasks for row in index)
        settled = settled + 1 if ready and ready == before else 0
        if ready >= expected or settled >= SETTLED:
            break
    return ready


def index_reader(settings: Settings, url: str) -> Callable[[], list[dict[str, str]]]:
    """What reads the gateway's index of variants; it raises whatever reaching it does."""
    return partial(asked, settings, f"{url}/v2/repository/index", b"")


def asked(
    settings: Settings, url: str, body: bytes | None = None, *, timeout_s: float = 5.0
) -> Any:
    """What a gateway of this installation answers, as JSON values.

    Raises:
        OSError, HTTPException or ValueError: it cannot be reached, refuses, or gives no JSON.
    """
    headers = {"Host": "localhost"}  # whatever names a gateway goes by, this is one of them
    if settings.api_token:
        headers["Authorization"] = f"Bearer {settings.api_token}"
    request = Request(url, data=body, headers=headers)  # noqa: S310
    # Proxies from the environment are for the way out, not for a gateway on this machine.
    handlers: list[BaseHandler] = [ProxyHandler({})]
    if settings.tls_cert:
        handlers.append(HTTPSHandler(context=trusting(settings.tls_cert, any_name=True)))
    with build_opener(*handlers).open(request, timeout=timeout_s) as reply:
        return json.load(reply)
