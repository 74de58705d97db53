"""What a forecast remembers, as values that can be written down, and read by a successor.

A memory is made of plain JSON values and of arrays, so that no code comes back with it. Whoever
recalls one checks that it fits: a memory that does not is refused as a whole, and its reader begins
anew.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Memory = Mapping[str, Any]
"""Names to numbers, texts, lists and mappings of these, None, and arrays."""


@runtime_checkable
class Remembers(Protocol):
    """Something whose memory can be kept."""

    def memory(self) -> Memory:
        """What a successor needs to go on; arrays are copies."""
        ...

    def recall(self, memory: Memory, shift_s: float) -> None:
        """Go on from what another one remembered; this one has seen nothing yet.

        Args:
            shift_s: to add to the times of the memory, for those of this one's clock.

        Raises:
            ValueError: it is no memory of such a thing. What is known now is not defined.
        """
        ...


def array(
    memory: Memory, name: str, shape: Sequence[int | None], like: npt.DTypeLike = np.float64
) -> npt.NDArray[Any]:
    """A copy of an array of a memory, as the type ``like``; None in ``shape`` is any length.

    Raises:
        ValueError: there is none, or it has another shape.
    """
    found = memory.get(name)
    if not isinstance(found, np.ndarray) or found.ndim != len(shape):
        raise ValueError(f"{name} is no array of {len(shape)} dimensions")
    if any(want not in (None, have) for want, have in zip(shape, found.shape, strict=True)):
        raise ValueError(f"{name} has the shape {found.shape} and not {tuple(shape)}")
    return np.array(found, dtype=like)


def number(memory: Memory, name: str) -> float:
    """A number of a memory.

    Raises:
        ValueError: there is none.
    """
    found = memory.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"{name} is no number")
    return float(found)


def part(memory: Memory, name: str) -> Memory:
    """A memory inside a memory.

    Raises:
        ValueError: there is none.
    """
    found = memory.get(name)
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is no memory")
    return found


def listed(memory: Memory, name: str) -> Sequence[Any]:
    """A list of a memory.

    Raises:
        ValueError: there is none.
    """
    found = memory.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name} is no list")
    return found


def as_key(value: Any) -> Any:
    """A key as it was before it was written down: lists were tuples."""
    return tuple(as_key(one) for one in value) if isinstance(value, list) else value


def as_list(key: Any) -> Any:
    """A key as it is written down: tuples become lists."""
    return [as_list(one) for one in key] if isinstance(key, tuple) else key
