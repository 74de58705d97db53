"""What one catalog has registered, in another one; and a database as it was before."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert, select

from variants.catalog.database import make_engine, writer
from variants.catalog.protocol import Catalog
from variants.catalog.tables import metadata
from variants.types import CatalogSnapshot, Registration


def copy_registrations(found: CatalogSnapshot, there: Catalog) -> None:
    """Register there what is registered here, with the profiles as they are."""
    tasks = {task.name: task for task in found.tasks}
    for version in found.versions:
        of_it = (version.task, version.label)
        variants = tuple(v for v in found.variants if (v.task, v.model_version) == of_it)
        keys = {variant.key for variant in variants}
        there.register(
            Registration(
                task=tasks[version.task],
                version=version,
                variants=variants,
                profiles=tuple(p for p in found.profiles if (p.task, p.variant) in keys),
                device_kinds=found.device_kinds,
            )
        )


Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""What a database holds, by table."""


def rows_of(url: str) -> Rows:
    """All that a catalog's database holds now, as a replica has it that lags from now on."""
    engine = make_engine(url)
    with engine.connect() as connection:
        found = {
            table.name: [dict(row) for row in connection.execute(select(table)).mappings()]
            for table in metadata.sorted_tables
        }
    engine.dispose()
    return found


def fail_over(url: str, rows: Rows) -> None:
    """Have a database hold these rows from one moment to the next, and nothing else: a replica that
    lagged has taken over, or a copy was restored."""
    engine = make_engine(url)
    with writer(engine).begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(delete(table))
        for table in metadata.sorted_tables:
            if held := rows[table.name]:
                connection.execute(insert(table), [dict(row) for row in held])
    engine.dispose()
