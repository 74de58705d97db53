"""What a policy is: the decisions that differ between systems, behind one protocol.

The simulator plays the part of the hardware and of the shell around it. A policy chooses a variant
and a worker for each query, makes the queue of each worker, and acts at its ticks. Ours calls the
functions that production calls; the others are the published rules.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from planner.batching.protocol import Queue
from planner.simulation.fleet import Fleet, Replica, Ticket, Worker
from planner.simulation.results import LayoutChange
from planner.simulation.setting import Setting
from planner.types import Action, Choice, Demand, Query, Refusal
from variants.types import WorkerId


class Policy(Protocol):
    """One per simulation. Times in ms and s are on the simulation's clock, which begins at 0."""

    tick_s: float
    """How often it wants to be asked what to do; the first time at 0."""

    def queue(self) -> Queue:
        """The queue of a worker that has just started."""
        ...

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        """Where a query goes. A cold choice has it wait for the load; with ``Refusal.load`` the
        load is begun and the query is rejected."""
        ...

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        """Where a query goes that its first worker, ``query.avoid``, refused or lost; None when
        the system does not try again."""
        ...

    def changed(self) -> None:
        """What is ready somewhere has changed."""
        ...

    def tick(self, now_s: float) -> Iterable[Action]:
        """What to do now."""
        ...


@runtime_checkable
class Learning(Protocol):
    """A policy that also learns from how long batches take."""

    def ran(
        self, replica: Replica, rows: int, run_ms: float, now_ms: float, queries: int, late: int
    ) -> None:
        """A batch of so many queries is done, some of them late. Told only where devices do not
        take what profiles say."""
        ...


@runtime_checkable
class Refusable(Protocol):
    """A policy that also wants to know of queries that workers refuse."""

    def refused(self, query: Query, worker: WorkerId, now_ms: float) -> None:
        """A worker had no time for a query: on its first try, its second, or after a load."""
        ...


@runtime_checkable
class Judged(Protocol):
    """A policy that also wants to know what queries come to, as gateways count it."""

    def came_to(self, in_time: int, lost: int) -> None:
        """Before each tick: how many queries were in time so far, and how many were late or
        refused."""
        ...


@runtime_checkable
class Replied(Protocol):
    """A policy whose gateways know of a worker's queue only what its replies say."""

    def replied(self, worker: Worker, tickets: Iterable[Ticket], now_ms: float) -> None:
        """A worker replies to queries that it had taken, and says with that how long its queue is.
        Of those that it does not take ``Refusable`` tells."""
        ...

    def sent(self, ticket: Ticket, now_ms: float) -> None:
        """A query is sent that waited for a load: it was chosen when that began."""
        ...


@runtime_checkable
class Targeting(Protocol):
    """A policy that gives targets to what it has loaded."""

    def begun(self, replica: Replica) -> None:
        """A load that it asked for at a tick has begun; one for a query is told at the next."""
        ...


@runtime_checkable
class Splitting(Protocol):
    """A policy that chooses how a machine is split."""

    @property
    def layout_changes(self) -> Sequence[LayoutChange]:
        """How it was, so far."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a policy is told when it is made."""

    setting: Setting
    average: Callable[[], tuple[Demand, ...]]
    """The trace's own mean rates by SLO class, with the tightest latency of each: for policies that
    are sized by hand, in advance. Ours does not look."""
    clock_s: Callable[[], float]
    """Wall clock, for the time limits of solvers only."""


Factory = Callable[[Brief, Fleet], Policy]
