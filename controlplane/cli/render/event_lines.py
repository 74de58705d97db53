"""Events as sentences: the lines of ``modelless events list``, and which workers were lost lately.

A worker that starts loads all that the plan gives it. One line for each would leave no room for
what else happened, so many loads in a row are one.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

Row = Mapping[str, Any]

FOLDED = frozenset({"loaded", "unloaded", "evicted"})
"""Kinds whose subject is a variant on a worker; so many in a row and more become one line."""
MANY = 4
MOST_ROWS = 1_000
"""Events that are asked for at most."""
ROWS_PER_LINE = 20
LOST, JOINED, LEFT = "worker_lost", "worker_joined", "worker_left"
UNSEEN = "while no control loop was running"
"""How the message of a loss ends that a control loop found when it took over."""
UNSEEN_S = 60.0
"""Who joined so shortly before that was told may be there in its place."""
LATELY_S = 600.0
"""For so long a lost worker is told of where the fleet is."""
MOST_LOST = 5


def rows_for(lines: int) -> int:
    """How many events to read, so that mostly as many lines come of them."""
    return min(MOST_ROWS, ROWS_PER_LINE * lines)


def event_lines(rows: Sequence[Row]) -> list[tuple[str, str, str, str, str]]:
    """Number, time, kind, subject and message of each line; rows and lines are the newest last.

    The time stays as it is in the row. A line for several has the number and time of the last.
    """
    lines = []
    for kind, group in groupby(rows, lambda row: str(row["kind"])):
        alike = list(group)
        if kind in FOLDED and len(alike) >= MANY:
            last = alike[-1]
            lines.append((str(last["seq"]), last["at"], kind, _where(alike), _why(alike)))
        else:
            lines += [
                (str(row["seq"]), row["at"], kind, row["subject"], row["message"]) for row in alike
            ]
    return lines


def lost_workers(rows: Sequence[Row]) -> list[str]:
    """A sentence for each worker that was lost, with what came after it; the newest first.

    Where that one has left in order since, as when all was stopped, the loss is past.

    Args:
        rows: events of the kinds ``LOST``, ``JOINED`` and ``LEFT``, the newest last.
    """
    found = []
    joined = [row for row in rows if row["kind"] == JOINED]
    losses = [row for row in rows if row["kind"] == LOST]
    gone = {row["subject"] for row in losses}
    left = {row["subject"] for row in rows if row["kind"] == LEFT}
    for row in losses:
        worker, at = str(row["subject"]), datetime.fromisoformat(row["at"])
        there = (one for one in joined if one["seq"] > row["seq"] or one["subject"] not in gone)
        after = next((one for one in there if _replaces(one, row)), None)
        since = "none has come in its place yet"
        if after is not None:
            joined.remove(after)
            if after["subject"] in left:
                continue
            took_s = (datetime.fromisoformat(after["at"]) - at).total_seconds()
            since = f"{after['subject']} came {took_s:,.0f} s later"
            if after["seq"] < row["seq"]:
                since = f"{after['subject']} is there in its place"
        why = str(row["message"]).removeprefix(f"worker {worker} is gone: ")
        found.append(f"{worker} was lost at {at.astimezone(UTC):%H:%M:%S} UTC: {why}; {since}")
    more = len(found) - MOST_LOST
    shown = found[::-1][:MOST_LOST]
    return [*shown, f"{more} more were lost shortly before"] if more > 0 else shown


def _replaces(joined: Row, lost: Row) -> bool:
    """Whether a worker of the same kind came after one was lost, or while nobody was looking."""
    if str(joined["subject"]).rpartition("-")[0] != str(lost["subject"]).rpartition("-")[0]:
        return False
    if joined["seq"] > lost["seq"]:
        return True
    before = datetime.fromisoformat(lost["at"]) - datetime.fromisoformat(joined["at"])
    return str(lost["message"]).endswith(UNSEEN) and before.total_seconds() <= UNSEEN_S


def _where(rows: Sequence[Row]) -> str:
    """``28 times on 2 workers``."""
    workers = {str(row["subject"]).rpartition(" on ")[2] for row in rows}
    where = f"{len(workers)} workers" if len(workers) > 1 else workers.pop()
    return f"{len(rows)} times on {where}"


def _why(rows: Sequence[Row]) -> str:
    """What they say, where all say the same, and which was the last."""
    return "; ".join((*_same(rows), f"last {rows[-1]['subject'].rpartition(' on ')[0]}"))


def _same(rows: Sequence[Row]) -> Iterator[str]:
    said = {str(row["message"]) for row in rows}
    if len(said) == 1:
        yield said.pop()
