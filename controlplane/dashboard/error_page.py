"""What a person meets in place of an error's JSON: where there is nothing, or a token is asked for.

A browser that opens an address asks for ``text/html``; programs do not, and get the one error body.
"""

import html
from collections.abc import Iterable
from http import HTTPStatus

from controlplane.dashboard.pages import page_headers, page_text

TITLES = {
    HTTPStatus.NOT_FOUND: "There is nothing here",
    HTTPStatus.UNAUTHORIZED: "This gateway asks for its token",
}
"""The errors that a page tells, by their status."""
HELP = {
    HTTPStatus.UNAUTHORIZED: " The dashboard and the API reference ask you for it.",
}


def wants_page(method: str, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a person opened an address in a browser, and there is a page for what went wrong.

    What scripts of a page ask for accepts anything, and is no page.
    """
    accepted = b",".join(value for name, value in headers if name == b"accept")
    return method == "GET" and status in TITLES and b"text/html" in accepted.lower()


def error_page(
    path: str, status: int, sentence: str, request_id: str
) -> tuple[bytes, dict[str, str]]:
    """The page of an error and its headers.

    Its links are relative to ``path``, as a proxy may have put the gateway below a path of its own.
    """
    known = HTTPStatus(status)
    page = page_text("error.html")
    top = "../" * (path.count("/") - 1) or "./"
    sentence = sentence[:1].upper() + sentence[1:].rstrip(".") + "." + HELP.get(known, "")
    for mark, text in (
        ("title", TITLES[known]),
        ("top", top),
        ("status", str(status)),
        ("request", request_id),
        ("sentence", sentence),  # the last one: it may hold anything
    ):
        page = page.replace(f"<!--{mark}-->", html.escape(text))
    return page.encode(), {**page_headers(page), "Cache-Control": "no-store", "Vary": "Accept"}
