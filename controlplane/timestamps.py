"""Timestamps as events, ticks and plans carry them."""

from datetime import UTC, datetime


def timestamp() -> str:
    """The time now in UTC, in ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
