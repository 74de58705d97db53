"""The pages as self-contained files: each is one text, with its style sheet and scripts inside.

In the folder a page names ``style.css``, ``elements.js`` and ``charts.js`` as any page would, so
that it can be opened and worked on from there; reading it puts them in.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

PAGES = {"/": "index.html", "/docs": "docs.html"}
"""The pages that the control API serves, and where each stands."""


def read_page(name: str) -> tuple[bytes, dict[str, str]]:
    """A page and its headers."""
    page = page_text(name)
    policy = f"{content_policy(page)}; frame-ancestors 'none'"
    return page.encode(), {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def page_text(name: str) -> str:
    """A page with the style sheet and the scripts that it names put in."""
    page = re.sub(
        r'<link rel="stylesheet" href="([\w.-]+)">',
        lambda found: f"<style>\n{_text(found[1])}</style>",
        _text(name),
    )
    return re.sub(
        r'<script src="([\w.-]+)"></script>',
        lambda found: f"<script>\n{_text(found[1])}</script>",
        page,
    )


def content_policy(page: str) -> str:
    """The content security policy of a page.

    It names the page's own scripts and styles by hash: no other script can run in it, and it can
    reach nothing but the server that it came from.
    """
    script = " ".join(_hashes(page, "script"))
    style = " ".join(_hashes(page, "style"))
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def light_colours() -> Mapping[str, str]:
    """The style sheet's colours by name (``c0``, ``ink``) as ``#rrggbb``, of its light theme."""
    first_rule = _text("style.css").partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", first_rule))


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hashes(page: str, tag: str) -> list[str]:
    """The page's inline blocks of a kind, as content policy sources."""
    blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digests = [hashlib.sha256(block.encode()).digest() for block in blocks]
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
