"""Profiles, device kinds and variants that come later, in a SQL catalog."""

from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, update

from variants.catalog import counters, tables
from variants.catalog.changes import advance_revision
from variants.catalog.rows import profile_rows, read_version, variant_row
from variants.catalog.sql_planning import check_variant
from variants.catalog.sql_tasks import SqlTaskTables
from variants.catalog.validity.absent import no_device_kind
from variants.catalog.validity.profiles import (
    check_device_kind,
    check_profile,
    check_profiling_request,
)
from variants.catalog.validity.registrations import check_addition, version_of
from variants.types import DeviceKind, Profile, ProfilingRequest, Variant


class SqlProfileTables(SqlTaskTables):
    """The part of ``variants.catalog.protocol.Catalog`` about what variants take."""

    def add_variants(
        self,
        variants: tuple[Variant, ...],
        profiles: tuple[Profile, ...],
        device_kinds: tuple[DeviceKind, ...] = (),
    ) -> None:
        if not variants:
            return
        for kind in device_kinds:
            check_device_kind(kind)
        with self._transaction(self._writer) as connection:
            advance_revision(connection, [variants[0].task])
            versions = map(read_version, connection.execute(select(tables.versions)))
            version = version_of(variants[0], tuple(versions))
            names = select(tables.variants.c.name).where(tables.variants.c.task == version.task)
            for kind in device_kinds:
                put_device_kind(connection, kind)
            check_addition(
                version,
                variants,
                profiles,
                taken=set(connection.scalars(names)),
                device_kinds=set(connection.scalars(select(tables.device_kinds.c.name))),
            )
            connection.execute(insert(tables.variants), [variant_row(v) for v in variants])
            insert_profiles(connection, profiles)

    def put_profiles(
        self, profiles: tuple[Profile, ...], device_kinds: tuple[DeviceKind, ...] = ()
    ) -> None:
        if not profiles and not device_kinds:
            return
        for profile in profiles:
            check_profile(profile)
        for kind in device_kinds:
            check_device_kind(kind)
        newest = {(p.task, p.variant, p.device_kind): p for p in profiles}
        with self._transaction(self._writer) as connection:
            advance_revision(connection, [profile.task for profile in profiles])
            for kind in device_kinds:
                put_device_kind(connection, kind)
            for profile in newest.values():
                _check_known(connection, profile)
                for table in (tables.profiles, tables.profiling_requests):
                    connection.execute(delete(table).where(*_key_of(table, profile)))
            insert_profiles(connection, tuple(newest.values()))

    def request_profiling(
        self, requests: tuple[ProfilingRequest, ...], *, anew: bool = False
    ) -> None:
        for request in requests:
            check_profiling_request(request)
        with self._transaction(self._writer) as connection:
            # The counter's row lines up writers: two may ask for the same at once.
            counters.lock(connection, "inventory")
            for request in requests:
                check_variant(connection, request.task, request.variant)
                table = tables.profiling_requests
                key = _key_of(table, request)
                if anew:
                    connection.execute(delete(table).where(*key))
                elif connection.execute(select(table.c.at).where(*key)).first():
                    continue
                connection.execute(insert(table), asdict(request))

    def profiling_requests(self) -> tuple[ProfilingRequest, ...]:
        with self._transaction(self._poller) as connection:
            found = connection.execute(select(tables.profiling_requests))
            requests = (ProfilingRequest(**row._mapping) for row in found)
            return tuple(sorted(requests, key=lambda r: (r.task, r.variant, r.device_kind)))


def put_device_kind(connection: Connection, kind: DeviceKind) -> None:
    """Add or replace a device kind; an idle draw that is known is not forgotten."""
    same = tables.device_kinds.c.name == kind.name
    row = asdict(kind)
    known = {name: value for name, value in row.items() if name != "idle_w" or value is not None}
    if not connection.execute(update(tables.device_kinds).where(same).values(known)).rowcount:
        connection.execute(insert(tables.device_kinds), row)


def insert_profiles(connection: Connection, new: tuple[Profile, ...]) -> None:
    """Write profiles that are not there, with their points."""
    if not new:
        return
    split = [profile_rows(profile) for profile in new]
    connection.execute(insert(tables.profiles), [row for row, _ in split])
    connection.execute(insert(tables.profile_points), [p for _, points in split for p in points])


def _key_of(table: Table, one: Profile | ProfilingRequest) -> tuple[ColumnElement[bool], ...]:
    """The condition that selects the row of a variant on a device kind."""
    return (
        table.c.task == one.task,
        table.c.variant == one.variant,
        table.c.device_kind == one.device_kind,
    )


def _check_known(connection: Connection, profile: Profile) -> None:
    check_variant(connection, profile.task, profile.variant)
    kind = tables.device_kinds.c.name == profile.device_kind
    if connection.scalar(select(tables.device_kinds.c.name).where(kind)) is None:
        raise no_device_kind(profile.device_kind)
