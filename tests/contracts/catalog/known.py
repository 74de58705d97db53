"""What several tests of catalogs take."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from variants.catalog.protocol import Catalog
from variants.types import ModelName, Slo, TaskName

DIGITS, MLP = TaskName("digits"), ModelName("mlp")


def in_threads(count: int, call: Callable[[int], object]) -> list[object]:
    """What ``call(0) .. call(count - 1)`` gave, each in a thread; an error counts as a result."""

    def caught(number: int) -> object:
        try:
            return call(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(caught, range(count)))


def change_slo(catalog: Catalog, of: str, change: Callable[[Slo], Slo]) -> tuple[Slo, Slo]:
    [(before, after)] = catalog.change_tasks(
        [TaskName(of)], lambda one: replace(one, slo=change(one.slo))
    )
    return before.slo, after.slo
