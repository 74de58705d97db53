"""Queue news: what a worker tells of its queue, and to whom.

A gateway that wants it sends ``FOLLOW`` with when it does, and again when that changes. The worker
then sends ``QUEUE`` with its replies, or by its clock, or both. Both are JSON.
"""

from typing import NamedTuple

from planner.types import FormingBatch, QueueNews
from variants.errors import InvalidInput
from variants.types import TaskName, VariantName
from workers.channel.messages import decode, encode

SHORTEST_S = 0.01
"""Nobody is told more often by the clock."""


class Wanted(NamedTuple):
    """When a gateway wants to be told."""

    replies: bool
    """With replies to its queries."""
    every_s: float
    """So long after it was told last; 0: never."""


def encode_wanted(wanted: Wanted) -> bytes:
    """The payload of ``FOLLOW``."""
    return encode({"replies": wanted.replies, "every_s": wanted.every_s})


def decode_wanted(data: bytes) -> Wanted:
    """When a gateway wants to be told.

    Raises:
        InvalidInput: a field is wrong.
    """
    value = decode(data)
    try:
        every_s = float(value.get("every_s", 0.0))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a message about queues is wrong: {error!r}") from error
    every_s = max(SHORTEST_S, every_s) if every_s > 0.0 else 0.0
    return Wanted(value.get("replies") is True, every_s)


def encode_news(news: QueueNews) -> bytes:
    """The payload of ``QUEUE``."""
    forming = [list(batch) for batch in news.forming]
    return encode({"backlog_ms": news.backlog_ms, "forming": forming})


def decode_news(data: bytes) -> QueueNews:
    """What a worker tells of its queue.

    Raises:
        InvalidInput: a field is missing or wrong.
    """
    value = decode(data)
    try:
        forming = [
            FormingBatch(
                TaskName(str(task)), VariantName(str(variant)), int(rows), int(most), float(in_ms)
            )
            for task, variant, rows, most, in_ms in value["forming"]
        ]
        return QueueNews(float(value["backlog_ms"]), forming)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"news of a queue are wrong: {error!r}") from error
