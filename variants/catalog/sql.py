"""The catalog in a database: SQLite in a file, or PostgreSQL.

Every method is one transaction. Writers of one kind queue up behind the row of their counter
(on SQLite behind the database), so numbers are given out in the order in which they commit.
Rows never leave this module and ``variants.catalog.rows``.
"""

import secrets
from dataclasses import asdict, replace

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    union_all,
)

from variants.buckets import asked_name
from variants.catalog import counters, tables
from variants.catalog.changes import advance_revision
from variants.catalog.database import BUSY_TIMEOUT_S, is_newest
from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import (
    EVENTS_KEPT,
    RARE_EVENTS_KEPT,
    Catalog,
    Marks,
    plans_kept,
    ticks_kept,
)
from variants.catalog.removal import check_number
from variants.catalog.rows import plan_row, read_plan, read_task, task_row, variant_row, version_row
from variants.catalog.sql_canaries import note_live
from variants.catalog.sql_profiles import SqlProfileTables, insert_profiles, put_device_kind
from variants.catalog.sql_snapshot import read_snapshot
from variants.catalog.sql_tasks import put_tokenizer, removed_versions
from variants.catalog.validity.buckets import check_names
from variants.catalog.validity.plans import (
    check_event,
    check_inventory,
    check_plan,
    plain_body,
)
from variants.catalog.validity.registrations import check_conflicts, check_registration
from variants.types import (
    ALL_EVENTS,
    FREQUENT,
    CatalogSnapshot,
    DeviceKindName,
    Event,
    EventFilter,
    ModelName,
    Plan,
    Registration,
    Stage,
    Task,
    TaskName,
    TickRecord,
)


def open_catalog(url: str, patience_s: float = BUSY_TIMEOUT_S) -> Catalog:
    """The catalog at a URL, created or brought up to date first.

    ``sqlite:///FILE``, ``postgresql://...``, or ``memory://`` for a new one in this process.

    Args:
        patience_s: how long a writer waits for other writers.

    Raises:
        Conflict: the database is of a newer version of the software.
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database cannot be reached or written.
    """
    if url == "memory://":
        return MemoryCatalog()
    migrate(url)
    return SqlCatalog(url, patience_s)


def migrate(url: str) -> None:
    """Create the tables of a catalog, or bring them up to date; safe in many processes at once.

    Raises:
        Conflict: the database is of a newer version of the software.
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database cannot be reached or written.
    """
    if is_newest(url):
        return
    from variants.catalog.migrations import upgrade  # imports Alembic, 0.2 s and 11 MiB

    upgrade(url)


_name, _value = tables.counters.c.name, tables.counters.c.value
_REVISION, _PLAN = (
    select(_value).where(_name == name).scalar_subquery() for name in ("revision", "plan")
)
_MARKS = union_all(
    select(literal_column("1"), _name, _value).where(or_(_name == "revision", _name == "plan")),
    select(literal_column("0"), tables.inventory.c.device_kind, tables.inventory.c.workers),
    select(literal_column("2"), func.max(tables.changes.c.mark), literal_column("0")).where(
        tables.changes.c.revision == _REVISION
    ),
    select(literal_column("3"), tables.plans.c.created_at, literal_column("0")).where(
        tables.plans.c.version == _PLAN
    ),
)
"""One statement, made once: each gateway asks it twice a second, the control loop in each turn."""


class SqlCatalog(SqlProfileTables):
    """A ``Catalog`` in a database whose tables exist already; see ``open_catalog``.

    The constructor connects to nothing. The last snapshot is kept, because the next one is made of
    it as far as nothing has changed.
    """

    _last: CatalogSnapshot | None = None

    def register(self, *registrations: Registration, joins: bool = False) -> None:
        if not registrations:
            return
        with self._transaction(self._writer) as connection:
            advance_revision(connection, [one.task.name for one in registrations])
            for one in registrations:
                _register(connection, one, joins=joins)

    def snapshot(self) -> CatalogSnapshot:
        with self._transaction(self._reader) as connection:
            self._last = read = read_snapshot(connection, self._last)
        return read

    def revision(self) -> int:
        with self._transaction(self._poller) as connection:
            return counters.value_of(connection, "revision")

    def marks(self) -> Marks:
        with self._transaction(self._poller) as connection:
            rows = connection.execute(_MARKS).all()
        counted = counters.complete(
            {name: number for of, name, number in rows if of == 1}, "revision", "plan"
        )
        kinds = sorted((name, number) for of, name, number in rows if of == 0)
        said = {of: str(name) for of, name, _ in rows if of in (2, 3) and name is not None}
        return Marks(
            revision=counted["revision"],
            plan_version=counted["plan"],
            inventory={DeviceKindName(kind): workers for kind, workers in kinds},
            revision_mark=said.get(2, ""),
            planned_at=said.get(3, ""),
        )

    def next_version(self, task: TaskName, model: ModelName) -> int:
        with self._transaction(self._poller) as connection:
            used = _versions_of(connection, task, model)
            return 1 + max((*used, *removed_versions(connection, task, model)), default=0)

    def inventory(self) -> dict[DeviceKindName, int]:
        with self._transaction(self._poller) as connection:
            return _inventory(connection)

    def set_inventory(self, device_kind: DeviceKindName, count: int) -> None:
        check_inventory(device_kind, count)
        with self._transaction(self._writer) as connection:
            # A row is replaced whole; the counter's row lines up writers on PostgreSQL.
            counters.advance(connection, "inventory")
            connection.execute(
                delete(tables.inventory).where(tables.inventory.c.device_kind == device_kind)
            )
            connection.execute(
                insert(tables.inventory), {"device_kind": device_kind, "workers": count}
            )

    def acquire_leadership(self, owner: str) -> int:
        with self._transaction(self._writer) as connection:
            epoch = counters.advance(connection, "epoch")
            mark = secrets.token_hex(8)
            row = {"epoch": epoch, "owner": owner, "mark": mark}
            connection.execute(insert(tables.leaders), row)
        self._led[epoch] = mark
        return epoch

    def leader(self) -> str:
        with self._transaction(self._poller) as connection:
            newest = select(tables.leaders.c.owner).order_by(tables.leaders.c.epoch.desc()).limit(1)
            return str(connection.execute(newest).scalar() or "")

    def put_plan(self, plan: Plan) -> Plan:
        check_plan(plan)
        with self._transaction(self._writer) as connection:
            self._check_leads(connection, plan.epoch, "a plan")
            stored = replace(
                plan, version=counters.advance(connection, "plan"), workers=dict(plan.workers)
            )
            connection.execute(insert(tables.plans), plan_row(stored))
            oldest = stored.version - plans_kept(len(stored.placements) + len(stored.routes))
            connection.execute(delete(tables.plans).where(tables.plans.c.version <= oldest))
            return stored

    def latest_plan(self) -> Plan | None:
        with self._transaction(self._poller) as connection:
            row = connection.execute(
                select(tables.plans).order_by(tables.plans.c.version.desc()).limit(1)
            ).first()
            return read_plan(row) if row else None

    def add_tick(self, record: TickRecord) -> None:
        body, size = plain_body(record)
        row = {"plan_version": record.plan_version, "at": record.at, "body": body}
        with self._transaction(self._writer) as connection:
            counters.append(connection, tables.ticks, "tick", [row], keep=ticks_kept(size))

    def ticks(self, limit: int, *, changes: bool = False) -> tuple[TickRecord, ...]:
        with self._transaction(self._poller) as connection:
            newest = select(tables.ticks).order_by(tables.ticks.c.seq.desc()).limit(max(0, limit))
            if changes:
                newest = newest.where(_changes_something())
            return tuple(
                TickRecord(plan_version=row.plan_version, at=row.at, body=row.body)
                for row in connection.execute(newest)
            )

    def add_event(self, *events: Event) -> None:
        for event in events:
            check_event(event)
        if not events:
            return
        rows = [asdict(event) for event in events]
        with self._transaction(self._writer) as connection:
            kept = tables.events.c
            keep = max(EVENTS_KEPT, RARE_EVENTS_KEPT)
            newest = counters.append(connection, tables.events, "event", rows, keep=keep)
            # Each is looked at once, when so many others have come after it.
            passed = kept.seq.between(newest - EVENTS_KEPT - len(rows) + 1, newest - EVENTS_KEPT)
            connection.execute(delete(tables.events).where(passed, kept.kind.in_(FREQUENT)))

    def events(self, limit: int, asked: EventFilter = ALL_EVENTS) -> tuple[Event, ...]:
        with self._transaction(self._poller) as connection:
            newest = (
                select(tables.events)
                .where(*_asked_for(asked))
                .order_by(tables.events.c.seq.desc())
                .limit(max(0, limit))
            )
            return tuple(Event(**row._mapping) for row in connection.execute(newest))


def _changes_something() -> ColumnElement[bool]:
    """Of a tick: its plan differs by more than its rates, or something was begun."""
    tick, before = tables.ticks.c, tables.ticks.alias().c
    version = select(before.plan_version).where(before.seq == tick.seq - 1).scalar_subquery()
    earlier = func.coalesce(version, -1)
    acted, changes = (tick.body[name].as_string() for name in ("actions", "changes"))
    # Of the first plan, and in records of old, nothing says what differs.
    planned = and_(tick.plan_version != earlier, or_(changes.is_(None), earlier <= 0))
    return or_(acted != "[]", changes != "[]", planned)


def _register(connection: Connection, registration: Registration, *, joins: bool) -> None:
    """Write one registration, of which the revision tells already."""
    task, version = registration.task, registration.version
    known = connection.scalars(select(tables.device_kinds.c.name))
    check_registration(registration, set(known))
    check_number(version, removed_versions(connection, task.name, version.model))
    stored = connection.execute(
        select(tables.tasks).where(tables.tasks.c.name == task.name)
    ).first()
    check_conflicts(
        registration,
        task=read_task(stored) if stored else None,
        versions=_versions_of(connection, task.name, version.model),
        variants=set(
            connection.scalars(
                select(tables.variants.c.name).where(tables.variants.c.task == task.name)
            )
        ),
        joins=joins,
    )
    put_tokenizer(connection, registration, new=stored is None)
    if stored is None:
        _check_names(connection, task)
        connection.execute(insert(tables.tasks), task_row(task))
    connection.execute(insert(tables.versions), version_row(version))
    if version.stage is Stage.LIVE:
        note_live(connection, (task.name, version.model, version.version))
    connection.execute(
        insert(tables.variants),
        [variant_row(variant) for variant in registration.variants],
    )
    for kind in registration.device_kinds:
        put_device_kind(connection, kind)
    insert_profiles(connection, registration.profiles)


def _check_names(connection: Connection, task: Task) -> None:
    """Refuse a new task whose name is that of buckets, or a bucket whose name is that of a task."""
    same = tables.tasks.c.name == asked_name(task)
    names = [TaskName(name) for name in connection.scalars(select(tables.tasks.c.name).where(same))]
    buckets = select(tables.tasks).where(tables.tasks.c.bucket.is_not(null()))
    check_names(task, names, map(read_task, connection.execute(buckets)))


def _asked_for(asked: EventFilter) -> list[ColumnElement[bool]]:
    """``EventFilter.fits`` as conditions; no LIKE, which knows no capital letters in SQLite."""
    row = tables.events.c
    found: list[ColumnElement[bool]] = [row.seq > asked.after]
    if asked.kinds:
        found.append(row.kind.in_(sorted(asked.kinds)))
    if asked.since:
        found.append(row.at >= asked.since)
    if asked.tasks:
        begins = [
            func.substr(row.subject, 1, len(task) + 1) == f"{task}/" for task in sorted(asked.tasks)
        ]
        found.append(or_(row.subject.in_(sorted(asked.tasks)), *begins))
    if asked.worker:
        ends = f" on {asked.worker}"
        rest = func.substr(row.subject, func.length(row.subject) - len(ends) + 1)
        found.append(
            or_(
                row.subject == asked.worker,
                and_(func.length(row.subject) >= len(ends), rest == ends),
            )
        )
    return found


def _inventory(connection: Connection) -> dict[DeviceKindName, int]:
    rows = connection.execute(select(tables.inventory).order_by("device_kind"))
    return {DeviceKindName(row.device_kind): row.workers for row in rows}


def _versions_of(connection: Connection, task: TaskName, model: ModelName) -> set[int]:
    return set(
        connection.scalars(
            select(tables.versions.c.version).where(
                tables.versions.c.task == task, tables.versions.c.model == model
            )
        )
    )
