"""In which order test processes take the tests, and which of them one process runs together.

Processes take whole files. Integration tests wait most of the time, for processes that start, and
other tests compute: so there are more processes than cores, and one of them, or more where there
are more than four, leaves the integration tests to the others. What takes long comes first, so that
none is left alone with it at the end:

1. the integration tests that share a deployment of one worker; they register the example family;
2. integration tests that need no registered family, and those that do;
3. files with tests that are marked ``slow``;
4. the rest.
"""

from collections.abc import Iterable, Mapping, Sequence

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

INTEGRATION = "tests/integration/"
SHARED = tuple(
    INTEGRATION + name for name in ("one_worker", "other_tasks", "two_workers", "elastic", "scarce")
)
"""Folders whose files share a deployment: one process runs them, one after the other."""
INSTALLATIONS = 3
"""Processes that run integration tests at once: their installations share the machine's cores."""
LAST = "test_examples.py"
"""Of its folder: it adds a task to the deployment."""


def group(nodeid: str) -> str:
    """What one process runs together: a file, or a folder with a shared deployment."""
    file = nodeid.partition("::")[0]
    folder = file.rpartition("/")[0]
    return next((one for one in SHARED if f"{folder}/".startswith(f"{one}/")), file)


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
    chosen = [first, *turns["early"], *turns["registering"], *turns["slow"], *turns["rest"]]
    return [item for tests in chosen for item in tests]


def fixtures(item: pytest.Item) -> Sequence[str]:
    """Names of its fixtures, and of theirs."""
    found: Sequence[str] = getattr(item, "fixturenames", ())
    return found


def next_group(waiting: Iterable[str], busy: Sequence[bool]) -> str | None:
    """What a process takes of the groups that wait, in their order; None where it is the first.

    Args:
        busy: whether each of the other processes has integration tests to run.
    """
    if not busy or sum(busy) < min(len(busy), INSTALLATIONS):
        return None
    return next((name for name in waiting if not name.startswith(INTEGRATION)), None)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Hands groups to the test processes, in the order in which they were collected.

    Integration tests go to all processes but one, and to three at most.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [work for one, work in self.assigned_work.items() if one is not node]
        chosen = next_group(self.workqueue, [_has_integration(work) for work in others])
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Give others what a process has left, but for the test that ended it, which is returned.

        ``LoadFileScheduling`` gives away all of it: a group that is done, with which the next
        process would wait for ever, and the test that ended this one, which would end the next.
        """
        left = {name: done for name, done in self.assigned_work.pop(node).items() if _is_left(done)}
        tests = (test for done in left.values() for test in done.items())
        ended = next((nodeid for nodeid, is_done in tests if not is_done), None)
        if ended is None:
            return None
        left[group(ended)][ended] = True
        self.workqueue.update({name: done for name, done in left.items() if _is_left(done)})
        for other in self.assigned_work:
            self._reschedule(other)
        return str(ended)


def _has_integration(work: Mapping[str, Mapping[str, bool]]) -> bool:
    """Whether a process, with its groups and which of their tests are done, has such tests left."""
    return any(name.startswith(INTEGRATION) and _is_left(done) for name, done in work.items())


def _is_left(done: Mapping[str, bool]) -> bool:
    """Whether a test of a group is not done."""
    return not all(done.values())
