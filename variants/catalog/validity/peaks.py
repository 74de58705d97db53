"""What a declared peak or a lifted quarantine may be, and how much of what is learned is kept."""

from math import isfinite

from variants.catalog.protocol import MOST_LEARNED_BYTES, MOST_PEAKS
from variants.catalog.validity.plain_values import check_name
from variants.errors import Conflict, InvalidInput
from variants.types import Peak, QuarantineLift

LATEST_S = 4_102_444_800.0
"""The year 2100: a later time was given in milliseconds, or by mistake."""
LONGEST_S = 366 * 86_400.0
"""Of one peak. What lasts longer is no peak."""
MOST_FACTOR = 1_000.0
MOST_QPS = 1e6
LEAST_EVERY_S = 60.0
MOST_NOTE = 200
"""Characters of a note."""


def check_peak(peak: Peak) -> None:
    """Refuse a peak that cannot come, or says nothing of the demand.

    Raises:
        InvalidInput: the first thing found wrong, in one sentence.
    """
    if peak.task == "":
        raise InvalidInput("'task' is empty: leave it out where the peak is of all tasks")
    if peak.task is not None:
        check_name(peak.task, "a task")
    check_course(peak)
    if len(peak.note) > MOST_NOTE or not peak.note.isprintable():
        raise InvalidInput(
            f"the note of a peak must be at most {MOST_NOTE} printable characters, not"
            f" {len(peak.note)} that begin with {peak.note[:40]!r}"
        )


def check_course(peak: Peak) -> None:
    """Refuse a peak whose times or size cannot be, whatever its task is called.

    Raises:
        InvalidInput: the first thing found wrong, in one sentence.
    """
    _check_times(peak)
    _check_size(peak)


def check_room(count: int) -> None:
    """Refuse another peak where there are ``count``.

    Raises:
        Conflict: that is as many as a catalog holds.
    """
    if count >= MOST_PEAKS:
        raise Conflict(f"there are {MOST_PEAKS:,} declared peaks, the most possible: remove some")


def check_lift(lift: QuarantineLift) -> None:
    """Raise ``InvalidInput`` unless a quarantine may be lifted at that time."""
    if not 0.0 <= lift.at_s <= LATEST_S:
        raise InvalidInput(f"a quarantine cannot be lifted at {lift.at_s!r} s of Unix time")


def check_learned(name: str, body: bytes) -> None:
    """Refuse what cannot be kept as learned.

    Raises:
        InvalidInput: the name breaks ``NAME``, or there is too much of it.
    """
    check_name(name, "something learned")
    if len(body) > MOST_LEARNED_BYTES:
        limit = MOST_LEARNED_BYTES // 2**20
        raise InvalidInput(f"what was learned takes {len(body):,} bytes; {limit} MiB are possible")


def _check_times(peak: Peak) -> None:
    for what, at_s in (("starts", peak.start_s), ("ends", peak.end_s)):
        if not 0.0 <= at_s <= LATEST_S:  # neither is it when it is not a number
            raise InvalidInput(f"a peak that {what} at {at_s} s is not between 1970 and 2100")
    lasts_s = peak.end_s - peak.start_s
    if lasts_s <= 0.0:
        when = f"{-lasts_s:,g} s before it" if lasts_s else "as it starts"
        raise InvalidInput(f"a peak must end after it starts, not {when}")
    if lasts_s > LONGEST_S:
        raise InvalidInput(f"a peak may last {_days(LONGEST_S)} at most, not {_days(lasts_s)}")
    if peak.every_s and not LEAST_EVERY_S <= peak.every_s <= LONGEST_S:
        raise InvalidInput(
            "a peak may come again after a minute at least and a year at most, not after"
            f" {peak.every_s:,g} s"
        )
    if peak.every_s and lasts_s > peak.every_s:
        raise InvalidInput(
            f"a peak must end before it comes again: it lasts {lasts_s:,g} s, and comes again after"
            f" {peak.every_s:,g} s"
        )


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:,.1f}".removesuffix(".0") + " days"


def _check_size(peak: Peak) -> None:
    if (peak.factor is None) == (peak.qps is None):
        raise InvalidInput("a peak needs a factor or the queries per second, one of the two")
    if peak.factor is not None and not 1.0 <= peak.factor <= MOST_FACTOR:
        raise InvalidInput(
            f"the factor of a peak must be from 1 to {MOST_FACTOR:,.0f}, not {peak.factor:g}"
        )
    if peak.qps is not None:
        if not (isfinite(peak.qps) and 0.0 < peak.qps <= MOST_QPS):
            raise InvalidInput(
                f"queries per second must be above 0, at most {MOST_QPS:,.0f}, not {peak.qps:g}"
            )
        if peak.task is None:
            raise InvalidInput("queries per second are of one task: name it, or give a factor")
