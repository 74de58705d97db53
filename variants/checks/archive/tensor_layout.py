"""TensorLayout: what a program's document says of a tensor, and how far it reaches in its storage.

All comes from a document that ``program_check`` has held against torch's schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from variants.checks.json_shape import Misfit

ITEM_BYTES = {
    1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 9: 4, 10: 8, 11: 16, 12: 1, 13: 2,
    28: 2, 29: 1, 30: 1, 31: 1, 32: 1, 33: 1, 34: 4, 35: 8,
}  # fmt: skip
"""Schema number of each element type to its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLayout:
    """A tensor of fixed sizes as the schema describes it; strides and offset count elements."""

    kind: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def count(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.sizes:
            count *= size
        return count

    @property
    def reach(self) -> int:
        """How many elements its storage has to hold."""
        if not self.count:
            return 0
        pairs = zip(self.sizes, self.strides, strict=True)
        return self.offset + sum((size - 1) * stride for size, stride in pairs) + 1


def layout_of(tensor: Mapping[str, Any]) -> TensorLayout:
    """A checked description whose sizes are all fixed.

    Raises:
        Misfit: one is not.
    """
    sizes, strides = (
        tuple(fixed_size(size) for size in tensor[field]) for field in ("sizes", "strides")
    )
    if len(sizes) != len(strides):
        raise Misfit(f"has {len(sizes)} sizes, but {len(strides)} strides")
    return TensorLayout(
        kind=tensor["dtype"],
        sizes=sizes,
        strides=strides,
        offset=fixed_size(tensor["storage_offset"]),
    )


def fixed_size(size: Mapping[str, Any]) -> int:
    """A checked size, stride or offset as a number.

    Raises:
        Misfit: it is a symbol, which may stand for several.
    """
    if "as_int" not in size:
        raise Misfit("has a size that varies where none may")
    return int(size["as_int"])
