"""Timestamps as events, ticks and plans carry them."""

from datetime import UTC, datetime


def timestamp() -> str:
    """The time now in UTC, in ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def timestamp_of(at_s: float) -> str:
    """Unix time in UTC, in ISO 8601, to the second."""
    return datetime.fromtimestamp(round(at_s), UTC).isoformat()


def spoken(at_s: float) -> str:
    """Unix time as a sentence has it: ``2026-01-31 23:59:00 UTC``."""
    return datetime.fromtimestamp(round(at_s), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
