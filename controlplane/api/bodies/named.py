"""Schemas of the OpenAPI document by name, as programs that make clients of it need them.

Of a body that is described in place such a program makes up a name; of one that is referred to it
makes one class, wherever it is used.
"""

from typing import Any

_REFERENCE = "#/components/schemas/"


def name_schemas(document: dict[str, Any]) -> None:
    """Move the objects that have a name of their own to where the document keeps schemas.

    A name is a ``title`` that may stand for a class in any language: ``Query``, ``InferRequest``.

    Raises:
        ValueError: two that differ have the same name.
    """
    schemas: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
    document["paths"] = _referring(document["paths"], schemas)
    document["components"]["schemas"] = dict(sorted(schemas.items()))


def _referring(part: Any, schemas: dict[str, Any]) -> Any:
    """A part of the document with references in the place of what is named."""
    if isinstance(part, list):
        return [_referring(each, schemas) for each in part]
    if not isinstance(part, dict):
        return part
    found = {key: _referring(value, schemas) for key, value in part.items()}
    name = found.get("title")
    if found.get("type") != "object" or not isinstance(name, str) or not name.isidentifier():
        return found
    if schemas.setdefault(name, found) != found:
        raise ValueError(f"two schemas are called {name}")
    return {"$ref": _REFERENCE + name}
