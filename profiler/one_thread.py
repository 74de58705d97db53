"""Computing on one thread: OpenMP's threads wait by spinning, and the cores are for queries."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def one_thread() -> AbstractContextManager[Any]:
    """Limits OpenMP to one thread: its threads wait by spinning, and the cores are for queries."""
    limits: AbstractContextManager[Any] = _threads().limit(limits=1, user_api="openmp")
    return limits


@cache
def _threads() -> Any:
    """The thread pools of this process; looking for them takes longer than a forecast."""
    import sklearn.ensemble  # noqa: F401  its thread pool has to be there to be found
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()
