"""Catalogs made of objects that are known: comparing two catalogs is quick where objects are the
same.

``planner.selection.snapshot`` takes over what did not change by that, and memory holds one of each.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import TypeVar

from variants.catalog.protocol import name_key, profile_key, variant_key, version_key
from variants.types import CatalogSnapshot

T = TypeVar("T")


def kept(found: Iterable[T], known: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """What was found, made of the objects that are known where they are equal."""
    by_key = {key(item): item for item in known}
    # Comparing what is the same takes long: fields are compared one by one.
    return [
        old if (old := by_key.get(key(item))) is item or old == item else item for item in found
    ]


def keeping(catalog: CatalogSnapshot, known: CatalogSnapshot) -> CatalogSnapshot:
    """The same catalog, made of the objects of a known one where they are equal.

    Comparing them takes long, but does not depend on the workers, so that it can be done earlier
    than snapshots for selection are built, and in another thread.
    """
    return replace(
        catalog,
        tasks=tuple(kept(catalog.tasks, known.tasks, name_key)),
        versions=tuple(kept(catalog.versions, known.versions, version_key)),
        variants=tuple(kept(catalog.variants, known.variants, variant_key)),
        profiles=tuple(kept(catalog.profiles, known.profiles, profile_key)),
        device_kinds=tuple(kept(catalog.device_kinds, known.device_kinds, name_key)),
    )
