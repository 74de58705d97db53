"""Accuracies: the catalog by which queries are answered and plans are made, where feedback counts.

Which feedback does, the control loop decides and tells (``plain``); gateways read it back
(``read``). What people read of the catalog stays as measured.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from planner.feedback.evidence import Finding
from variants.types import CatalogSnapshot, TaskName, VariantKey, VariantName

Counted = Mapping[VariantKey, Finding]
"""What counts of each variant in place of what was measured."""


class Accuracies:
    """Remembers the catalog that it made last."""

    def __init__(self) -> None:
        self.counted: Counted = {}
        self._of: CatalogSnapshot | None = None
        self._made: CatalogSnapshot | None = None

    def know(self, counted: Counted) -> bool:
        """Go by these from now on; whether that is another catalog."""
        if counted == self.counted:
            return False
        self.counted, self._of = dict(counted), None
        return True

    def at(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """The catalog as it counts; itself where nothing in it has another accuracy."""
        if self._made is None or self._of is not catalog:
            self._of, self._made = catalog, _with(catalog, self.counted)
        return self._made


def _with(catalog: CatalogSnapshot, counted: Counted) -> CatalogSnapshot:
    """The catalog with these accuracies in place of its own; itself where it has none of them."""
    if not counted or not any(variant.key in counted for variant in catalog.variants):
        return catalog
    variants = tuple(
        variant
        if (found := counted.get(variant.key)) is None
        else replace(
            variant,
            accuracy=found.accuracy,
            accuracy_rows=found.rows,
            measured_accuracy=variant.accuracy,
        )
        for variant in catalog.variants
    )
    return replace(catalog, variants=variants)


def plain(counted: Counted) -> list[list[Any]]:
    """The same as task, variant, accuracy and rows."""
    return [[*key, *found] for key, found in sorted(counted.items())]


def read(told: Iterable[Any]) -> Counted:
    """What ``plain`` gave; nothing where it is something else."""
    try:
        return {
            (TaskName(task), VariantName(variant)): Finding(float(accuracy), int(rows))
            for task, variant, accuracy, rows in told
        }
    except (ValueError, TypeError):
        return {}
