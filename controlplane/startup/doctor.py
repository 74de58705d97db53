"""What `modelless up` needs, looked at one by one without starting or changing anything.

Each check returns findings; one that is a problem says what to do about it. Heavy packages are
imported in processes of their own, so that a broken one can neither slow down nor end this one.
"""

from collections.abc import Iterator

from controlplane.settings import Settings
from controlplane.startup.checks.configuration import access, keys, names, rules
from controlplane.startup.checks.finding import Check, Finding, Say
from controlplane.startup.checks.installation import packages, python, torch
from controlplane.startup.checks.machine import (
    cores,
    files,
    gpus,
    memory,
    niceness,
    nodes,
    processes,
    taken_cores,
)
from controlplane.startup.checks.services import artifacts, database, live_state, port, ray, texts
from controlplane.startup.checks.serving import tasks
from controlplane.startup.checks.state import leftovers, running_here, secrets, state_directory
from controlplane.startup.presence import as_told


def examine(settings: Settings, say: Say = lambda _: None) -> Iterator[Finding]:
    """All findings, in the order in which one would mend them.

    Where a ``modelless up`` has the state directory, those are of the settings that it runs with.
    ``say`` is told how far the longest of them is, which reads all artifacts.
    """
    state = running_here(settings)
    settings = settings if state is None else as_told(settings, state)
    for check in CHECKS:
        yield from check(settings)
    yield from artifacts(settings, say)


CHECKS: tuple[Check, ...] = (
    python, packages, torch, names, rules, access, keys, state_directory, secrets, leftovers,
    port, ray, live_state, database, texts, cores, taken_cores, gpus, memory, files, processes,
    nodes, niceness, tasks,
)  # fmt: skip
