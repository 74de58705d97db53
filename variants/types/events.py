"""What happened, and which of it is asked for."""

from dataclasses import dataclass

FREQUENT = frozenset(
    {
        "evicted",
        "loaded",
        "loaded_on_demand",
        "planned",
        "profile_confirmed",
        "profile_doubted",
        "profile_measured",
        "unloaded",
    }
)
"""The kinds of which there may be one for each variant and worker, again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened and that an operator may ask about later."""

    at: str
    kind: str
    """``loaded``, ``worker_lost``, ...; docs/reference/watching.md has all of them."""
    subject: str
    message: str
    seq: int = 0
    """Given by the catalog; ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events are asked for: those that all of these fit that are said."""

    after: int = 0
    """Only those with a higher ``seq``."""
    kinds: frozenset[str] = frozenset()
    """One of these kinds; empty: any."""
    since: str = ""
    """At this time or later, in ISO 8601 and UTC; compared as text, to the second."""
    tasks: frozenset[str] = frozenset()
    """Of one of these tasks, or of a model or variant of one; empty: of any."""
    worker: str = ""
    """Of this worker, or of a variant on it."""

    def fits(self, event: "Event") -> bool:
        """Whether an event is asked for."""
        subject, worker = event.subject, self.worker
        task = subject.partition("/")[0]
        return (
            event.seq > self.after
            and (not self.kinds or event.kind in self.kinds)
            and event.at >= self.since
            and (not self.tasks or task in self.tasks)
            and (not worker or subject == worker or subject.endswith(f" on {worker}"))
        )


ALL_EVENTS = EventFilter()
