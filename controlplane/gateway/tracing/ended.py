"""What is known of a query that has ended and is traced: plain values, for another thread."""

from typing import NamedTuple

from controlplane.gateway.query.replies import ReplyMetadata
from planner.types import Query


class Asked(NamedTuple):
    """How a query came. Times are of the query path's clock, in ms."""

    route: str
    received_ms: float
    parent: bytes | None
    """Its ``traceparent``, where it had one that can be read."""
    state: bytes | None
    """Its ``tracestate``."""


class Tries(NamedTuple):
    """What a query in flight has been through."""

    query: Query
    reason: str
    """Why its variant was chosen; empty where none was."""
    variant: str
    worker: str
    """Those that were asked last; empty where none was."""
    read_ms: float
    """What reading it took."""
    sent_ms: float
    """When it was sent to that worker; 0 where it was not."""
    asked_count: int
    """Workers that were asked."""
    why: str
    """Why the first one did not answer."""
    loads: int
    """Loads that it waited for."""


class Ended(NamedTuple):
    """One query with its answer."""

    asked: Asked
    task: str
    """Empty where it is not known."""
    ended_ms: float
    wall_ns: int
    """The time of day at ``ended_ms``, in ns since 1970."""
    status: int
    error: bytes
    """The body of an error; empty for an answer."""
    request_id: str
    tries: Tries | None
    """None where the query was refused before a variant was looked for, or its answer was kept."""
    made: ReplyMetadata | None
    """What the answer says of how it was made."""
