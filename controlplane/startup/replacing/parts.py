"""What `modelless upgrade` replaces, and what runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from controlplane.cluster.replicas import Deployment, Replicas


class Fleet(Protocol):
    """What runs the replicas."""

    def look(self, deployment: Deployment) -> Replicas: ...
    def starts(self, deployment: Deployment) -> str: ...
    def renew(self, deployment: Deployment, mark: str) -> None: ...
    def leave(self, deployment: Deployment, replica: str) -> bool: ...
    def end(self, deployment: Deployment) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Replicas of one kind."""

    words: str
    """What they are called, in the plural."""
    deployment: Deployment
    extra: str = ""
    """Under which name the control loop is asked to have one more run; empty: never."""
    room: bool = True
    """Whether there is room for one more."""
    lacks: str = ""
    """Why there is none, where that is worth saying."""
    worker_prefix: str = ""
    """Before the replica in the name of a worker; empty: it is no worker."""
    forgettable: bool = False
    """Whether the control loop deploys it by itself where none runs and some are wanted."""
    ready: Callable[[str], bool] = lambda _: True
    """Whether a replica that runs does its work."""
