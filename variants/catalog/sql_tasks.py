"""What operators change of tasks and versions that are registered, in a SQL catalog."""

from collections.abc import Callable, Collection
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, and_, insert, null, select, update
from sqlalchemy import delete as sql_delete

from variants.buckets import bucketed_named
from variants.catalog import counters, tables
from variants.catalog.changes import advance_revision, mark_of
from variants.catalog.removal import Freed, Removed, check_retired, discarded, freed, together
from variants.catalog.rows import (
    image_row,
    read_task,
    read_variant,
    read_version,
    sharing_row,
    slo_row,
    text_row,
)
from variants.catalog.sql_canaries import (
    SqlCanaryTables,
    forget_version,
    move_version,
    of_version,
    read_canaries,
    version_columns,
    versions_of_model,
)
from variants.catalog.validity.absent import no_task, no_tokenizer, no_version
from variants.catalog.validity.canaries import key_of
from variants.catalog.validity.promoting import to_promote
from variants.catalog.validity.registrations import check_judged, not_judged
from variants.catalog.validity.tasks import check_task
from variants.catalog.validity.texts import check_named, check_tokenizer, tokenizers_of
from variants.texts.inputs import digest_of_text, packed, unpacked
from variants.types import (
    CatalogState,
    Digest,
    ModelName,
    ModelVersion,
    Peak,
    Registration,
    Stage,
    Task,
    TaskName,
    Variant,
)


class SqlTaskTables(SqlCanaryTables):
    """The part of ``variants.catalog.protocol.Catalog`` that changes what is registered."""

    def set_stage(
        self,
        tasks: Collection[TaskName],
        model: ModelName,
        version: int,
        stage: Stage,
        *,
        decided_at: CatalogState | None = None,
    ) -> bool:
        with self._transaction(self._writer) as connection:
            counters.lock(connection, "revision")
            revision = counters.value_of(connection, "revision")
            if decided_at not in (None, (revision, mark_of(connection, revision))):
                return False
            advance_revision(connection, tasks)
            for task in tasks:
                if not move_version(connection, (task, model, version), stage):
                    raise no_version(task, f"{model}-v{version}")
            return True

    def promote(
        self, tasks: Collection[TaskName], model: ModelName, version: int | None = None
    ) -> tuple[ModelVersion, ...]:
        with self._transaction(self._writer) as connection:
            counters.lock(connection, "revision")
            known = [one for task in tasks for one in versions_of_model(connection, task, model)]
            found = to_promote(tasks, model, version, known, read_canaries(connection))
            if moving := [one for one in found if one.stage is not Stage.LIVE]:
                advance_revision(connection, [one.task for one in moving])
                for one in moving:
                    move_version(connection, key_of(one), Stage.LIVE)
            return found

    def remove_task(self, *tasks: TaskName) -> Removed:
        with self._transaction(self._writer) as connection:
            counters.lock(connection, "revision")
            named = [one.name for task in tasks for one in _named(connection, task)]
            advance_revision(connection, named)
            gone = [_remove_task(connection, task) for task in named]
            _forget_tokenizers(connection)
            return together(gone)

    def remove_version(
        self, tasks: Collection[TaskName], model: ModelName, version: int
    ) -> Removed:
        with self._transaction(self._writer) as connection:
            advance_revision(connection, tasks)
            gone = [_remove_version(connection, task, model, version) for task in tasks]
            _forget_tokenizers(connection)
            return together(gone)

    def removed_versions(self, task: TaskName, model: ModelName) -> dict[int, Digest]:
        with self._transaction(self._poller) as connection:
            return removed_versions(connection, task, model)

    def tokenizer(self, digest: Digest) -> bytes:
        table = tables.tokenizers
        with self._transaction(self._poller) as connection:
            wanted = select(table.c.packed).where(table.c.digest == digest)
            found = connection.execute(wanted).scalar()
        if found is None:
            raise no_tokenizer(digest)
        return unpacked(bytes(found))

    def leftovers(self) -> frozenset[Digest]:
        with self._transaction(self._poller) as connection:
            return frozenset(connection.scalars(select(tables.leftover_artifacts.c.digest)))

    def free(self, delete: Callable[[Digest], None], most: int | None = None) -> Freed:
        left_over = tables.leftover_artifacts
        with self._transaction(self._writer) as connection:
            counters.lock(connection, "revision")
            first = select(left_over).order_by(left_over.c.digest).limit(most)
            rows = connection.execute(first).all()
            left = {Digest(row.digest): str(row.subject) for row in rows}
            found = freed(left, _used(connection))
            for digest in found.deleted:
                delete(digest)
            if rows:
                handled = left_over.c.digest <= rows[-1].digest
                connection.execute(sql_delete(left_over).where(handled))
            return found

    def discard(
        self, digests: Collection[Digest], delete: Callable[[Digest], None]
    ) -> tuple[Digest, ...]:
        with self._transaction(self._writer) as connection:
            counters.lock(connection, "revision")
            return discarded(digests, _used(connection), delete)

    def put_judged(self, judged: tuple[Variant, ...]) -> None:
        if not judged:
            return
        for one in judged:
            check_judged(one)
        table = tables.variants
        with self._transaction(self._writer) as connection:
            advance_revision(connection, {one.task for one in judged})
            for one in judged:
                same = and_(
                    table.c.task == one.task,
                    table.c.name == one.name,
                    table.c.artifact == one.artifact,
                )
                columns = {
                    "accuracy": one.accuracy,
                    "accuracy_rows": one.accuracy_rows,
                    "agreement": one.agreement,
                    "note": one.note,
                    "answered": one.answered or None,
                    "found": one.found or None,
                }
                if not connection.execute(update(table).where(same).values(columns)).rowcount:
                    raise not_judged(one)

    def change_tasks(
        self,
        tasks: Collection[TaskName],
        change: Callable[[Task], Task],
        tokenizer: bytes | None = None,
    ) -> tuple[tuple[Task, Task], ...]:
        with self._transaction(self._writer) as connection:
            counters.lock(connection, "revision")
            done = tuple(
                _change_task(connection, row, change, tokenizer)
                for task in tasks
                for row in _named(connection, task)
            )
            if differ := [before.name for before, after in done if after != before]:
                advance_revision(connection, differ)
            return done


def _named(connection: Connection, name: TaskName) -> tuple[Task, ...]:
    """The task of that name, or the buckets that share it, ascending by length.

    Raises:
        NotFound: there is neither.
    """
    table = tables.tasks
    row = connection.execute(select(table).where(table.c.name == name)).first()
    if row is not None:
        return (read_task(row),)
    rows = connection.execute(select(table).where(table.c.bucket.is_not(null())))
    found = bucketed_named(map(read_task, rows), name)
    if found is None:
        raise no_task(name)
    return found.buckets


def _change_task(
    connection: Connection,
    before: Task,
    change: Callable[[Task], Task],
    tokenizer: bytes | None,
) -> tuple[Task, Task]:
    """Write what a task is from now on; what it was, and what it is."""
    same = tables.tasks.c.name == before.name
    after = change(before)
    check_task(after)
    if tokenizer is not None or after.text != before.text:
        known = _known_tokenizers(connection, tokenizers_of([after], []))
        check_named(after, tokenizer, known=known)
        if tokenizer is not None:
            _keep_tokenizer(connection, tokenizer, known)
    if after != before:
        columns = slo_row(after.slo) | sharing_row(after.sharing) | image_row(after.image)
        columns |= text_row(after.text)
        columns["labels"] = list(after.labels)
        connection.execute(update(tables.tasks).where(same).values(columns))
    return before, after


def put_tokenizer(connection: Connection, registration: Registration, *, new: bool) -> None:
    """Keep the tokenizer that comes with a registration, where it is not there yet.

    Args:
        new: whether the task of the registration is.
    """
    named = tokenizers_of([registration.task], [registration.version])
    if not named and registration.tokenizer is None:
        return
    known = _known_tokenizers(connection, named)
    check_tokenizer(registration, new=new, known=known)
    if registration.tokenizer is not None:
        _keep_tokenizer(connection, registration.tokenizer, known)


def _known_tokenizers(connection: Connection, named: Collection[Digest]) -> frozenset[Digest]:
    """Those among them that are there."""
    table = tables.tokenizers
    found = connection.scalars(select(table.c.digest).where(table.c.digest.in_(named)))
    return frozenset(Digest(one) for one in found)


def _keep_tokenizer(connection: Connection, tokenizer: bytes, known: Collection[Digest]) -> None:
    digest = digest_of_text(tokenizer)
    if digest not in known:
        row = {"digest": digest, "packed": packed(tokenizer)}
        connection.execute(insert(tables.tokenizers), row)


def _forget_tokenizers(connection: Connection) -> None:
    """Remove those that no task and no version names any more."""
    tasks = map(read_task, connection.execute(select(tables.tasks)))
    versions = map(read_version, connection.execute(select(tables.versions)))
    named = tokenizers_of(tasks, versions)
    table = tables.tokenizers
    connection.execute(sql_delete(table).where(table.c.digest.not_in(named)))


def _used(connection: Connection) -> set[Digest]:
    """Every artifact that something registered uses."""
    sources = connection.scalars(select(tables.versions.c.source))
    artifacts = connection.scalars(select(tables.variants.c.artifact))
    return {Digest(digest) for digest in (*sources, *artifacts)}


def removed_versions(connection: Connection, task: TaskName, model: ModelName) -> dict[int, Digest]:
    """The sources of a model's versions that were removed, by their numbers."""
    gone = tables.removed_versions.c
    wanted = select(gone.version, gone.source).where(gone.task == task, gone.model == model)
    rows = connection.execute(wanted.order_by(gone.version))
    return {int(row.version): Digest(row.source) for row in rows}


def _remove_task(connection: Connection, task: TaskName) -> Removed:
    of_task = tables.versions.c.task == task
    peaks = select(tables.peaks).where(tables.peaks.c.task == task)
    gone = tuple(Peak(**row._mapping) for row in connection.execute(peaks))
    found = _remove_versions(connection, str(task), of_task)
    removed = replace(found, tasks=(task,), peaks=gone)
    connection.execute(sql_delete(tables.peaks).where(tables.peaks.c.task == task))
    named = sql_delete(tables.tasks).where(tables.tasks.c.name == task)
    if not connection.execute(named).rowcount:
        raise no_task(task)
    return removed


def _remove_version(
    connection: Connection, task: TaskName, model: ModelName, version: int
) -> Removed:
    numbered = and_(*of_version(tables.versions, (task, model, version)))
    row = connection.execute(select(tables.versions).where(numbered)).first()
    if row is None:
        raise no_version(task, f"{model}-v{version}")
    check_retired(read_version(row))
    return _remove_versions(connection, f"{task}/{model}-v{version}", numbered)


def _remove_versions(
    connection: Connection, subject: str, condition: ColumnElement[bool]
) -> Removed:
    """Take versions out with all that is of them, and note that they were there."""
    # Nobody asks for a measurement, or lifts a quarantine, of what is on its way out.
    counters.lock(connection, "inventory")
    found = connection.execute(select(tables.versions).where(condition))
    versions = sorted(map(read_version, found.all()), key=key_of)
    variants: list[Variant] = []
    for one in versions:
        _remember(connection, one)
        forget_version(connection, key_of(one))
        numbered = of_version(tables.variants, key_of(one))
        rows = connection.execute(select(tables.variants).where(*numbered)).all()
        variants += list(map(read_variant, rows))
        names = [row.name for row in rows]
        of_variants = (
            tables.profiles, tables.profiling_requests, tables.quarantine_lifts,
            tables.accepted_answers, tables.rules,
        )  # fmt: skip
        for table in of_variants:
            key = table.c
            connection.execute(
                sql_delete(table).where(key.task == one.task, key.variant.in_(names))
            )
        connection.execute(sql_delete(tables.variants).where(*numbered))
    connection.execute(sql_delete(tables.versions).where(condition))
    removed = Removed(
        versions=tuple(versions), variants=tuple(sorted(variants, key=lambda v: v.key))
    )
    left_over = tables.leftover_artifacts
    known = set(connection.scalars(select(left_over.c.digest)))
    new = [{"digest": digest, "subject": subject} for digest in removed.artifacts - known]
    if new:
        connection.execute(insert(left_over), new)
    return removed


def _remember(connection: Connection, version: ModelVersion) -> None:
    """Keep the number and the source of a version that is removed."""
    gone = tables.removed_versions
    connection.execute(sql_delete(gone).where(*of_version(gone, key_of(version))))
    connection.execute(insert(gone), version_columns(key_of(version)) | {"source": version.source})
