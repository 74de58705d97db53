"""The pages at ``/`` and ``/docs``: self-contained files that read the control API."""

import base64
import hashlib
import re
from importlib.resources import files

PAGES = {"/": "index.html", "/docs": "docs.html"}
"""Where each page stands."""


def read_page(name: str) -> tuple[bytes, dict[str, str]]:
    """A page and its headers.

    The content policy names the page's own script and style by hash: no other script can run in
    it, and it can reach nothing but the server that it came from.
    """
    page = files(__name__).joinpath(name).read_text(encoding="utf-8")
    script = " ".join(_hashes(page, "script"))
    style = " ".join(_hashes(page, "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page.encode(), {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def _hashes(page: str, tag: str) -> list[str]:
    """The page's inline blocks of a kind, as content policy sources."""
    blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digests = [hashlib.sha256(block.encode()).digest() for block in blocks]
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
