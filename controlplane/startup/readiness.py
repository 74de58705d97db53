"""What is loaded, asked of a gateway that may not listen yet, with the standard library alone."""

import json
from collections.abc import Callable
from urllib.request import BaseHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from controlplane.settings import Settings
from controlplane.tls import trusting


def index_reader(settings: Settings, url: str) -> Callable[[], list[dict[str, str]]]:
    """What reads the gateway's index of variants; it raises whatever reaching it does."""
    headers = {"Host": "localhost"}  # whatever names a gateway goes by, this is one of them
    if settings.api_token:
        headers["Authorization"] = f"Bearer {settings.api_token}"
    request = Request(f"{url}/v2/repository/index", data=b"", headers=headers)  # noqa: S310
    # Proxies from the environment are for the way out, not for a gateway on this machine.
    handlers: list[BaseHandler] = [ProxyHandler({})]
    if settings.tls_cert:
        handlers.append(HTTPSHandler(context=trusting(settings.tls_cert, any_name=True)))
    opener = build_opener(*handlers)

    def read() -> list[dict[str, str]]:
        with opener.open(request, timeout=5) as reply:
            found: list[dict[str, str]] = json.load(reply)
        return found

    return read
