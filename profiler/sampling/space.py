"""The space that a model is profiled in on one device kind: kind x threads x batch size."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

CALIBRATIONS = frozenset({"entropy", "percentile"})
"""Options that change how ranges were found, and not what is computed."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Configuration:
    """One point of the space: what is measured, or predicted."""

    kind: str
    """The end of a variant's name, ``<runtime>-<precision>[-option]``."""
    threads: int
    """Number of threads that compute one batch."""
    batch_size: int


def runtime_of(kind: str) -> str:
    """``openvino`` of ``openvino-int8``."""
    return kind.partition("-")[0]


def precision_of(kind: str) -> str:
    """``int8`` of ``onnx-int8-dynamic``; of a kind without one, the kind itself."""
    return [*kind.split("-"), kind][1]


def arithmetic_of(kind: str) -> str:
    """``onnx-int8`` of ``onnx-int8-entropy``: what decides the numbers, and hardly the time."""
    return "-".join(part for part in kind.split("-") if part not in CALIBRATIONS)


@dataclass(frozen=True, kw_only=True)
class Space:
    """Every combination of what is given.

    Raises:
        ValueError: something is empty, twice there, or not positive.
    """

    kinds: tuple[str, ...]
    threads: tuple[int, ...]
    batch_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("kinds", "threads", "batch_sizes"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be some different values, not {values}")
        if min(self.threads) < 1 or min(self.batch_sizes) < 1:
            raise ValueError("threads and batch sizes are at least 1")

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """All configurations in the order given; batch sizes vary fastest."""
        return tuple(
            Configuration(kind=kind, threads=threads, batch_size=batch_size)
            for kind, threads, batch_size in product(self.kinds, self.threads, self.batch_sizes)
        )

    def __len__(self) -> int:
        return len(self.kinds) * len(self.threads) * len(self.batch_sizes)

    def largest(self, kind: str) -> Configuration:
        """The kind's largest batch on all threads, which its accuracy is measured with anyway."""
        return Configuration(kind=kind, threads=max(self.threads), batch_size=max(self.batch_sizes))
