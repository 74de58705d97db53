"""A drawing as one page of its own: the values as JSON, and the script that draws them."""

from html import escape

import orjson

from controlplane.dashboard.pages import content_policy, page_text
from controlplane.plots.drawing import Drawing


def html(drawing: Drawing) -> str:
    """The page. It asks for no other file and may reach no other place."""
    page = page_text("plot.html").replace("<!--title-->", escape(drawing.title))
    policy = f'<meta http-equiv="Content-Security-Policy" content="{escape(content_policy(page))}">'
    # The data comes last: nothing that stands in it is taken for a place to fill.
    return page.replace("<!--policy-->", policy).replace("<!--data-->", as_json(drawing))


def as_json(drawing: Drawing) -> str:
    """The values as JSON that cannot end the script element in which it stands."""
    return orjson.dumps(drawing).decode().replace("<", "\\u003c")
