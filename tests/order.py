"""In which order test processes take the tests, and which of them one process runs together.

Processes take whole files (three processes for two cores, because many tests wait). What takes
long comes first, so that none is left alone with it at the end, and what waits lies beside what
computes:

1. the integration tests that share a deployment of one worker; they register the example family;
2. integration tests that need no registered family;
3. files with tests that are marked ``slow``, and among them, evenly, the other integration tests;
4. the rest.
"""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from xdist.scheduler import LoadFileScheduling

INTEGRATION = "tests/integration/"
SHARED = tuple(INTEGRATION + name for name in ("one_worker", "two_workers", "elastic"))
"""Folders whose files share a deployment: one process runs them, one after the other."""
T = TypeVar("T")
LAST = "test_examples.py"
"""Of its folder: it adds a task to the deployment."""


def group(nodeid: str) -> str:
    """What one process runs together: a file, or a folder with a shared deployment."""
    file = nodeid.partition("::")[0]
    folder = file.rpartition("/")[0]
    return folder if folder in SHARED else file


def ordered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests in the order above; those of a group stay together and in their order."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(group(item.nodeid), []).append(item)
    first = sorted(groups.pop(SHARED[0], []), key=lambda item: item.path.name == LAST)
    turns: dict[str, list[list[pytest.Item]]] = {
        turn: [] for turn in ("early", "registering", "slow", "rest")
    }
    for name, tests in groups.items():
        if name.startswith(INTEGRATION):
            needs = any("registered" in fixtures(item) for item in tests)
            turn = "registering" if needs else "early"
        else:
            is_slow = any(item.get_closest_marker("slow") for item in tests)
            turn = "slow" if is_slow else "rest"
        turns[turn].insert(0 if name in SHARED else len(turns[turn]), tests)
    chosen = [
        first,
        *turns["early"],
        *spread(turns["registering"], turns["slow"]),
        *turns["rest"],
    ]
    return [item for tests in chosen for item in tests]


def spread(few: Sequence[T], among: Sequence[T]) -> list[T]:
    """Those of the first evenly among the second, in the order of each."""
    turns = [((index + 0.5) / len(few), one) for index, one in enumerate(few)]
    turns += [((index + 0.5) / len(among), one) for index, one in enumerate(among)]
    return [one for _, one in sorted(turns, key=lambda turn: turn[0])]


def fixtures(item: pytest.Item) -> Sequence[str]:
    """Names of its fixtures, and of theirs."""
    found: Sequence[str] = getattr(item, "fixturenames", ())
    return found


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Hands groups to the test processes, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
