"""The pages as self-contained files: each is one text, with its style sheet and scripts inside.

In the folder a page names ``style.css``, ``elements.js``, ``charts.js`` and ``favicon.svg`` as any
page would, so that it can be opened and worked on from there; reading it puts them in. What only
``index.html`` needs is in ``index/``, one script for each part of it; ``index/page.js`` comes last.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

PAGES = {"/": "index.html", "/docs": "docs.html"}
"""The pages that the control API serves, and where each stands."""
ICONS = ("/favicon.ico", "/favicon.svg")
"""Where the icon stands: pages hold it, and browsers look for the first by themselves."""


def read_page(name: str) -> tuple[bytes, dict[str, str]]:
    """A page and its headers: a browser that has it asks whether it is still the same."""
    page = page_text(name)
    return page.encode(), {
        **page_headers(page),
        "Cache-Control": "no-cache",
        "ETag": entity_tag(page.encode()),
    }


def read_icon() -> tuple[bytes, dict[str, str]]:
    """The icon and its headers: a browser asks for it once a day."""
    icon = _text("favicon.svg").encode()
    return icon, {
        "Content-Security-Policy": "default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "public, max-age=86400",
        "ETag": entity_tag(icon),
    }


def page_headers(page: str) -> dict[str, str]:
    """What a browser may do with a page."""
    return {
        "Content-Security-Policy": f"{content_policy(page)}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }


def entity_tag(body: bytes) -> str:
    """By which a browser says what it has."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def page_text(name: str) -> str:
    """A page with the style sheet, the scripts and the icon that it names put in."""
    icon = base64.b64encode(_text("favicon.svg").encode()).decode()
    page = re.sub(
        r'<link rel="stylesheet" href="([\w.-]+)">',
        lambda found: f"<style>\n{_text(found[1])}</style>",
        _text(name).replace('href="favicon.svg"', f'href="data:image/svg+xml;base64,{icon}"'),
    )
    return re.sub(
        r'<script src="([\w./-]+)"></script>',
        lambda found: f"<script>\n{_text(found[1])}</script>",
        page,
    )


def content_policy(page: str) -> str:
    """The content security policy of a page.

    It names the page's own scripts and styles by hash: no other script can run in it, and it can
    reach nothing but the server that it came from.
    """
    script = " ".join(_hashes(page, "script")) or "'none'"
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
