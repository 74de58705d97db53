"""What each revision of a SQL catalog has changed, so that a reader of an earlier one reads only
that again.

Whoever advances the revision notes in the same transaction of which tasks it changed something. A
reader goes by the notes where they are of every revision since the one that it knows. They are not
where a process of an earlier release has written, which knows no notes, where they are too old to
be kept, or where the database is another one than before, such as a copy that was restored: then
everything is read. Each revision has a random mark besides its number, because two copies of a
catalog may go on from the same number.
"""

import secrets
from collections.abc import Iterable

from sqlalchemy import Connection, delete, insert, select

from variants.catalog import counters, tables
from variants.types import TaskName

CHANGES_KEPT = 1_000
"""Revisions that are noted; whoever knows an older one reads everything."""
NO_TASK = TaskName("")
"""In the note of a revision that changed nothing of any task: rules, canaries or device kinds."""


def advance_revision(connection: Connection, tasks: Iterable[TaskName] = ()) -> int:
    """The next revision, noted with the tasks of which it changes something; other transactions
    wait for theirs until this one is over.

    Device kinds, rules and canaries need no note: there are few, and readers read all of them.
    """
    revision = counters.advance(connection, "revision")
    noted, mark = tables.changes, secrets.token_hex(8)
    rows = [
        {"revision": revision, "task": task, "mark": mark}
        for task in sorted(set(tasks)) or [NO_TASK]
    ]
    connection.execute(insert(noted), rows)
    connection.execute(delete(noted).where(noted.c.revision <= revision - CHANGES_KEPT))
    return revision


def mark_of(connection: Connection, revision: int) -> str:
    """The mark of a revision; empty where nobody has noted it."""
    noted = tables.changes.c
    found = select(noted.mark).where(noted.revision == revision).limit(1)
    return connection.scalar(found) or ""


def changed_tasks(
    connection: Connection, since: int, mark: str, until: int
) -> frozenset[TaskName] | None:
    """The tasks that the revisions after ``since`` have changed, up to ``until``.

    Args:
        mark: that of ``since``.

    Returns:
        None where that cannot be said.
    """
    if not mark or not 0 <= until - since < CHANGES_KEPT:
        return None
    noted = tables.changes.c
    rows = connection.execute(
        select(noted.revision, noted.task, noted.mark).where(
            noted.revision >= since, noted.revision <= until
        )
    ).all()
    known = {int(row.revision) for row in rows}
    if any(row.revision == since and row.mark != mark for row in rows):
        return None
    if known != set(range(since, until + 1)):
        return None
    return frozenset(
        TaskName(row.task) for row in rows if row.revision > since and row.task != NO_TASK
    )
