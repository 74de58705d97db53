"""Applications of FastAPI, of which hundreds of tests make one each.

Nearly all of the time of making one goes into validators, one for each parameter and each answer of
each route. Those of equal declarations are equal, so a test process makes each of them once.
"""

from typing import Any

from fastapi._compat import v2
from pydantic import TypeAdapter

_make = v2.ModelField.__post_init__
_made: dict[tuple[Any, ...], TypeAdapter[Any]] = {}


def share_validators() -> None:
    """Have all applications of this process share them from now on."""
    v2.ModelField.__post_init__ = _share  # type: ignore[assignment]


def _share(field: v2.ModelField) -> None:
    info = field.field_info
    said = tuple(repr(getattr(info, name, None)) for name in v2._Attrs)
    kind = repr(info.annotation)  # of a union also its order
    declared = (info.annotation, kind, tuple(info.metadata), said, repr(field.config))
    try:
        known = _made.get(declared)
    except TypeError:  # what bounds a parameter need not be hashable
        _make(field)
        return
    if known is None:
        _make(field)
        _made[declared] = field._type_adapter
    else:
        field._type_adapter = known
