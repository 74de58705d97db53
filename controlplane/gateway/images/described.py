"""Queries by picture, for the OpenAPI document: bodies, and headers that say what is asked."""

from collections.abc import Mapping
from typing import Any

from controlplane.gateway.images.asked import BESIDE, MEAN, PREFER, SLO, STD, TASK, shown

FORMATS = ("image/png", "image/jpeg")
_NUMBERS = {"type": "string", "example": "0.485,0.456,0.406"}
_BESIDE: dict[str, dict[str, Any]] = {
    "variant": {"type": "string"},
    "model_version": {"type": "string"},
    "priority": {"type": "integer", "minimum": 0},
    "best_effort": {"type": "boolean"},
}
"""Without defaults, which clients made of the document would send beside JSON, where no header may
say it."""
_PIXELS = (
    "Of this picture, where that is not as the task says: one number, or one for each channel."
)


def with_pictures(query: Mapping[str, Any]) -> dict[str, Any]:
    """A route's description whose body may be a picture as well.

    Args:
        query: what ``openapi_extra`` of the route is for a JSON body.
    """
    body = query["requestBody"]
    slo = body["content"]["application/json"]["schema"]["properties"]["slo"]["properties"]
    headers: dict[str, tuple[str, Mapping[str, Any]]] = {
        TASK: ("The task that a picture is for.", {"type": "string"}),
        **{name: (f"`slo.{key}` of a picture.", slo[key]) for name, key in SLO.items()},
        PREFER: ("`slo.prefer` of a picture.", slo["prefer"]),
        **{name: (f"`{key}` of a picture.", _BESIDE[key]) for name, key in BESIDE.items()},
        MEAN: (f"Taken from each pixel's value over 255. {_PIXELS}", _NUMBERS),
        STD: (f"What that is divided by. {_PIXELS}", _NUMBERS),
    }
    picture = {"schema": {"type": "string", "format": "binary"}}
    described = " A PNG or JPEG is one row; headers say for which task, and what is needed."
    return {
        **query,
        "parameters": [
            {
                "name": shown(name),
                "in": "header",
                "required": False,
                "description": description,
                "schema": {key: value for key, value in schema.items() if key != "description"},
            }
            for name, (description, schema) in headers.items()
        ],
        "requestBody": {
            **body,
            "description": body["description"] + described,
            "content": {**body["content"], **dict.fromkeys(FORMATS, picture)},
        },
    }
