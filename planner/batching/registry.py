"""The batching rules by name. Adding one is one file and one line here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from variants.registry import Entry, load

if TYPE_CHECKING:
    # Settings read the names below, and no command line needs a queue for that.
    from planner.batching.protocol import LiveQueue

BATCHING: Mapping[str, Entry] = {
    "profile": Entry(
        target="planner.batching.deadline_queue:DeadlineQueue",
        about="by deadline, from the profile",
    ),
    "aimd": Entry(
        target="planner.batching.aimd:AdditiveQueue",
        about="additive increase, multiplicative decrease, where profiles mislead",
    ),
}
"""How a worker may batch: a name to the class of the queue, which is made without arguments."""


def make_queue(name: str) -> "LiveQueue":
    """A new, empty queue that follows a batching rule.

    Raises:
        InvalidInput: there is no such rule.
    """
    return cast("LiveQueue", load("batching rule", name, BATCHING)())
