"""What operators change of tasks and versions that are registered, in a SQL catalog."""

from typing import Any

from sqlalchemy import update

from variants.catalog import counters, tables
from variants.catalog.rows import sharing_row, slo_row
from variants.catalog.sharing_validation import check_sharing
from variants.catalog.sql_planning import SqlPlanningTables
from variants.catalog.validation import check_slo
from variants.errors import NotFound
from variants.types import ModelName, Sharing, Slo, Stage, TaskName


class SqlTaskTables(SqlPlanningTables):
    """The part of ``variants.catalog.protocol.Catalog`` that changes what is registered."""

    def set_stage(self, task: TaskName, model: ModelName, version: int, stage: Stage) -> None:
        with self._transaction(self._writer) as connection:
            counters.advance(connection, "revision")
            found = connection.execute(
                update(tables.versions)
                .where(
                    tables.versions.c.task == task,
                    tables.versions.c.model == model,
                    tables.versions.c.version == version,
                )
                .values(stage=stage)
            ).rowcount
            if not found:
                raise NotFound(f"task {task!r} has no version {model}-v{version}")

    def set_slo(self, task: TaskName, slo: Slo) -> None:
        check_slo(slo, f"task {task!r}")
        self._change_task(task, slo_row(slo))

    def set_sharing(self, task: TaskName, sharing: Sharing | None) -> None:
        check_sharing(sharing, f"task {task!r}")
        self._change_task(task, sharing_row(sharing))

    def _change_task(self, task: TaskName, columns: dict[str, Any]) -> None:
        with self._transaction(self._writer) as connection:
            counters.advance(connection, "revision")
            named = update(tables.tasks).where(tables.tasks.c.name == task)
            if not connection.execute(named.values(columns)).rowcount:
                raise NotFound(f"there is no task {task!r}")
