"""Canaries and the way back, in a SQL catalog: shares of queries, and stages that follow."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, replace

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, update

from variants.catalog import counters, tables
from variants.catalog.changes import advance_revision
from variants.catalog.rows import read_version
from variants.catalog.sql_planning import SqlPlanningTables
from variants.catalog.validity.canaries import (
    RolledBack,
    VersionKey,
    check_canary,
    check_may_share,
    key_of,
    none_to_end,
    standing,
    taken_back,
)
from variants.catalog.validity.spaces import check_comparable, is_own_space, standing_back
from variants.types import Canary, ModelName, ModelVersion, Stage, TaskName


class SqlCanaryTables(SqlPlanningTables):
    """The part of ``variants.catalog.protocol.Catalog`` about canaries."""

    def set_canary(self, *canaries: Canary) -> tuple[Canary, ...]:
        for canary in canaries:
            check_canary(canary)
        with self._transaction(self._writer) as connection:
            number = advance_revision(connection, [canary.task for canary in canaries])
            known = {one.task: one for one in read_canaries(connection)}
            for canary in canaries:
                own = versions_of_model(connection, canary.task, canary.model)
                named = (v for v in own if v.version == canary.version)
                check_may_share(canary, next(named, None), known.get(canary.task))
                check_comparable(canary, _metric(connection, canary.task))
            given = tuple(replace(canary, number=number, ended="") for canary in canaries)
            for canary in given:
                move_version(connection, _key(canary), Stage.CANARY)
                _forget(connection, canary.task)
                connection.execute(insert(tables.canaries), asdict(canary))
            return given

    def end_canary(self, tasks: Collection[TaskName], model: ModelName) -> tuple[Canary, ...]:
        with self._transaction(self._writer) as connection:
            advance_revision(connection)  # no version changes
            sharing = (_sharing(connection, task, model) for task in tasks)
            ended = tuple(one for one in sharing if one is not None)
            if not ended:
                raise none_to_end(tasks, model)
            for one in ended:
                _forget(connection, one.task)
            return ended

    def settle_canary(self, canary: Canary, *, promote: bool, why: str, epoch: int) -> bool:
        with self._transaction(self._writer) as connection:
            self._check_leads(connection, epoch, "the verdict on a canary")
            counters.lock(connection, "revision")
            known = _sharing(connection, canary.task, canary.model)
            if known is None or known.share_id != canary.share_id:
                return False
            advance_revision(connection, [known.task])
            if promote:
                move_version(connection, _key(known), Stage.LIVE)
            else:
                ended = update(tables.canaries).where(tables.canaries.c.task == known.task)
                connection.execute(ended.values(share=0.0, ended=why))
            return True

    def roll_back(
        self, tasks: Collection[TaskName], model: ModelName, version: int | None = None
    ) -> tuple[RolledBack, ...]:
        with self._transaction(self._writer) as connection:
            advance_revision(connection, tasks)
            lived = {
                (row.task, row.model, row.version)
                for row in connection.execute(select(tables.lived_versions))
            }
            versions = [one for task in tasks for one in versions_of_model(connection, task, model)]
            canaries = read_canaries(connection)
            done = taken_back(tasks, model, version, versions, canaries, lived)
            for one in done:
                if one.canary is not None:
                    _forget(connection, one.canary.task)
                for moved, stage in one.moves:
                    move_version(connection, key_of(moved), stage)
                if one.retired is not None:
                    same = of_version(tables.lived_versions, key_of(one.retired))
                    connection.execute(delete(tables.lived_versions).where(*same))
            return done


def read_canaries(
    connection: Connection, versions: Iterable[ModelVersion] | None = None
) -> tuple[Canary, ...]:
    """Those that stand, by task; ``versions`` are all that there are, where they were read."""
    rows = connection.execute(select(tables.canaries)).all()
    if rows and versions is None:
        versions = map(read_version, connection.execute(select(tables.versions)))
    return standing((Canary(**row._mapping) for row in rows), versions or ())


def move_version(connection: Connection, key: VersionKey, stage: Stage) -> bool:
    """Write the stage of a version, and what follows from it; whether there is such a version."""
    if not connection.execute(
        update(tables.versions).where(*of_version(tables.versions, key)).values(stage=stage)
    ).rowcount:
        return False
    if stage is Stage.LIVE:
        note_live(connection, key)
        _stand_back(connection, key)
    if stage is not Stage.CANARY:
        connection.execute(delete(tables.canaries).where(*of_version(tables.canaries, key)))
    return True


def _stand_back(connection: Connection, key: VersionKey) -> None:
    """Make the other live versions canaries where those of their task have spaces of their own."""
    task = key[0]
    if not is_own_space(_metric(connection, task)):
        return
    of = tables.versions.c.task == task, tables.versions.c.stage == Stage.LIVE
    live = map(read_version, connection.execute(select(tables.versions).where(*of)))
    for one in standing_back(live, {key: Stage.LIVE}):
        move_version(connection, key_of(one), Stage.CANARY)


def _metric(connection: Connection, task: TaskName) -> str:
    of = select(tables.tasks.c.metric).where(tables.tasks.c.name == task)
    return str(connection.execute(of).scalar_one())


def note_live(connection: Connection, key: VersionKey) -> None:
    """Remember that a version is live."""
    lived = tables.lived_versions
    connection.execute(delete(lived).where(*of_version(lived, key)))
    connection.execute(insert(lived), version_columns(key))


def forget_version(connection: Connection, key: VersionKey) -> None:
    """Forget of a version that it was live, or had a share."""
    for table in (tables.lived_versions, tables.canaries):
        connection.execute(delete(table).where(*of_version(table, key)))


def version_columns(key: VersionKey) -> dict[str, str | int]:
    """The columns by which tables know a version."""
    return dict(zip(("task", "model", "version"), key, strict=True))


def of_version(table: Table, key: VersionKey) -> tuple[ColumnElement[bool], ...]:
    """The conditions that select the rows of a version."""
    return tuple(table.c[name] == value for name, value in version_columns(key).items())


def _key(canary: Canary) -> VersionKey:
    return canary.task, canary.model, canary.version


def versions_of_model(
    connection: Connection, task: TaskName, model: ModelName
) -> list[ModelVersion]:
    """All versions of a model of one task."""
    table = tables.versions
    of = select(table).where(table.c.task == task, table.c.model == model)
    return list(map(read_version, connection.execute(of)))


def _sharing(connection: Connection, task: TaskName, model: ModelName) -> Canary | None:
    """The canary of a model that has a share."""
    found = (c for c in read_canaries(connection) if (c.task, c.model) == (task, model))
    return next((one for one in found if one.share), None)


def _forget(connection: Connection, task: TaskName) -> None:
    connection.execute(delete(tables.canaries).where(tables.canaries.c.task == task))
