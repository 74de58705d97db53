"""In which order test processes take the tests, and which of them one process runs together.

Processes take whole files (three processes for two cores, because many tests wait). What takes
long comes first, so that none is left alone with it at the end:

1. the integration tests that share a deployment of one worker; they register the example family;
2. integration tests that need no registered family;
3. files with tests that are marked ``slow``, while the family is being registered;
4. the other integration tests;
5. the rest.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

INTEGRATION = "tests/integration/"
SHARED = tuple(INTEGRATION + name for name in ("one_worker", "two_workers", "elastic"))
"""Folders whose files share a deployment: one process runs them, one after the other."""
LAST = "test_examples.py"
"""Of its folder: it adds a task to the deployment."""


def group(nodeid: str) -> str:
    """What one process runs together: a file, or a folder with a shared deployment."""
    file = nodeid.partition("::")[0]
    folder = file.rpartition("/")[0]
    return folder if folder in SHARED else file


def ordered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests in the order above; those of a group stay together and in their order."""
    marked = {group(item.nodeid) for item in items if item.get_closest_marker("slow")}
    registering = {group(item.nodeid) for item in items if "registered" in fixtures(item)}

    def turn(item: pytest.Item) -> tuple[int, bool]:
        name = group(item.nodeid)
        last = Path(name).name == Path(SHARED[0]).name and item.path.name == LAST
        if name == SHARED[0]:
            return 1, last
        if name.startswith(INTEGRATION):
            return 4 if name in registering else 2, last
        return 3 if name in marked else 5, last

    return sorted(items, key=turn)


def fixtures(item: pytest.Item) -> Sequence[str]:
    """Names of its fixtures, and of theirs."""
    found: Sequence[str] = getattr(item, "fixturenames", ())
    return found


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Hands groups to the test processes, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
