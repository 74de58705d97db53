"""Snapshots of a SQL catalog: the first is read whole, of those that follow what has changed."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Select, select

from variants.catalog import counters, tables
from variants.catalog.changes import changed_tasks, mark_of
from variants.catalog.known_objects import kept
from variants.catalog.protocol import name_key, profile_key, variant_key, version_key
from variants.catalog.rows import (
    PointsByProfile,
    read_device_kind,
    read_point,
    read_profile,
    read_task,
    read_variant,
    read_version,
)
from variants.catalog.sql_canaries import read_canaries
from variants.catalog.sql_planning import read_rules
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    ModelVersion,
    Profile,
    Task,
    TaskName,
    Variant,
)

T = TypeVar("T")
Key = Callable[[T], Any]

MOST_TASKS = 500
"""Where more have changed, everything is read: one statement names no more."""


def read_snapshot(connection: Connection, last: CatalogSnapshot | None) -> CatalogSnapshot:
    """The catalog as it is now, within a transaction that reads one state of the database.

    Where it goes on from what was read last, it is made of the same objects as far as these are
    equal, and costs what the tasks cost of which something has changed. Of a revision without a
    mark all is read anew.
    """
    revision = counters.value_of(connection, "revision")
    changed = None
    if last is not None:
        changed = changed_tasks(connection, last.revision, last.mark, revision)
        if changed is not None and revision == last.revision:
            return last
    if last is None or changed is None or len(changed) > MOST_TASKS:
        snapshot = _whole(connection, revision)
    else:
        snapshot = _gone_on(connection, revision, last, sorted(changed))
    return replace(snapshot, mark=mark_of(connection, revision))


def _whole(connection: Connection, revision: int) -> CatalogSnapshot:
    versions = _versions(connection)
    return CatalogSnapshot(
        revision=revision,
        tasks=_tasks(connection),
        versions=versions,
        variants=_variants(connection),
        profiles=_profiles(connection),
        device_kinds=_device_kinds(connection),
        rules=read_rules(connection),
        canaries=read_canaries(connection, versions),
    )


def _gone_on(
    connection: Connection, revision: int, known: CatalogSnapshot, tasks: Sequence[TaskName]
) -> CatalogSnapshot:
    """A known catalog with what there is now of some of its tasks, and of all that has no task."""
    versions = _spliced(known.versions, _versions(connection, tasks), tasks, version_key)
    kinds = _device_kinds(connection)
    return CatalogSnapshot(
        revision=revision,
        tasks=_spliced(known.tasks, _tasks(connection, tasks), tasks, name_key, task_of=name_key),
        versions=versions,
        variants=_spliced(known.variants, _variants(connection, tasks), tasks, variant_key),
        profiles=_spliced(known.profiles, _profiles(connection, tasks), tasks, profile_key),
        device_kinds=tuple(kept(kinds, known.device_kinds, name_key)),
        rules=read_rules(connection),
        canaries=read_canaries(connection, versions),
    )


def _spliced(
    known: tuple[T, ...],
    found: tuple[T, ...],
    tasks: Sequence[TaskName],
    key: Key[T],
    task_of: Key[T] = attrgetter("task"),
) -> tuple[T, ...]:
    """What is known, with what was found in place of all that is known of these tasks.

    Args:
        known: in the order of its tasks, as ``found`` is.
        tasks: in order.
    """
    made: list[T] = []
    done = 0
    for task in tasks:
        begin = bisect_left(known, task, lo=done, key=task_of)
        end = bisect_right(known, task, lo=begin, key=task_of)
        made += known[done:begin]
        now = found[bisect_left(found, task, key=task_of) : bisect_right(found, task, key=task_of)]
        made += kept(now, known[begin:end], key)
        done = end
    return (*made, *known[done:])


# -- tables, each of some tasks or of all, in the order of their names ------------------------


def _of(column: Column[Any], tasks: Sequence[TaskName] | None) -> Select[Any]:
    rows = select(column.table)
    return rows if tasks is None else rows.where(column.in_(tasks))


def _tasks(connection: Connection, tasks: Sequence[TaskName] | None = None) -> tuple[Task, ...]:
    rows = connection.execute(_of(tables.tasks.c.name, tasks))
    return tuple(sorted(map(read_task, rows), key=name_key))


def _versions(
    connection: Connection, tasks: Sequence[TaskName] | None = None
) -> tuple[ModelVersion, ...]:
    rows = connection.execute(_of(tables.versions.c.task, tasks))
    return tuple(sorted(map(read_version, rows), key=version_key))


def _variants(
    connection: Connection, tasks: Sequence[TaskName] | None = None
) -> tuple[Variant, ...]:
    rows = connection.execute(_of(tables.variants.c.task, tasks))
    return tuple(sorted(map(read_variant, rows), key=variant_key))


def _profiles(
    connection: Connection, tasks: Sequence[TaskName] | None = None
) -> tuple[Profile, ...]:
    points: PointsByProfile = {}
    ascending = _of(tables.profile_points.c.task, tasks).order_by(
        tables.profile_points.c.batch_size
    )
    for row in connection.execute(ascending):
        points.setdefault((row.task, row.variant, row.device_kind), []).append(read_point(row))
    rows = connection.execute(_of(tables.profiles.c.task, tasks))
    return tuple(sorted((read_profile(row, points) for row in rows), key=profile_key))


def _device_kinds(connection: Connection) -> tuple[DeviceKind, ...]:
    rows = connection.execute(select(tables.device_kinds))
    return tuple(sorted(map(read_device_kind, rows), key=name_key))
