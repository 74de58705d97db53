"""A supervisor that says nothing of its steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controlplane.settings import Settings
from controlplane.startup.supervisor import Supervisor


@contextmanager
def plain_step(_title: str) -> Iterator[Callable[[str], None]]:
    """A step that says nothing."""
    yield lambda _: None


def supervisor(settings: Settings, said: list[str] | None = None) -> Supervisor:
    return Supervisor(settings, plain_step, (said if said is not None else []).append)
