"""A trial of a backup's rows: a catalog is made of them in a file that is thrown away.

Rows may fit their tables and still say what no catalog says, such as a precision that does not
exist. In the installation they would be there for good: nothing could read them, and nothing is
restored into a catalog that has something in it.
"""

from collections.abc import Iterable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from controlplane.timestamps import timestamp
from variants.catalog.copying import Row, fill
from variants.catalog.sql import SqlCatalog
from variants.errors import Conflict, InvalidInput
from variants.types import Event, Plan, TickRecord


def check_usable(rows: Iterable[Row], migration: str, folder: Path) -> None:
    """Refuse rows of which no catalog comes that can be read and written.

    Args:
        migration: of the tables that the rows are from.
        folder: where the trial is made; what is left there is nobody's.

    Raises:
        InvalidInput: what is wrong with them, in one sentence.
        StateUnavailable: the trial cannot be written.
    """
    url = f"sqlite:///{folder / 'trial.db'}"
    try:
        fill(url, migration, rows)
        with closing(SqlCatalog(url)) as catalog:
            _read(catalog)
            _write(catalog)
    except Conflict as error:
        raise InvalidInput(f"the backup contradicts itself: {error.message}") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(
            f"the catalog in the backup cannot be read: {type(error).__name__}, {error}"
        ) from error


def _read(catalog: SqlCatalog) -> None:
    """All that a process reads of a catalog when it starts."""
    for profile in catalog.snapshot().profiles:
        if not profile.points:
            raise InvalidInput(
                f"the catalog in the backup has a profile of {profile.task}/{profile.variant} "
                f"on {profile.device_kind} without a latency"
            )
    catalog.latest_plan()
    catalog.peaks()
    catalog.profiling_requests()
    catalog.quarantine_lifts()
    catalog.accepted_answers()
    for tick in catalog.ticks(1):
        datetime.fromisoformat(tick.at)


def _write(catalog: SqlCatalog) -> None:
    """What a control loop writes first: each takes the next number of a counter."""
    now = timestamp()
    epoch = catalog.acquire_leadership("trial")
    plan = Plan(version=0, epoch=epoch, placements=(), workers={}, created_at=now)
    version = catalog.put_plan(plan).version
    catalog.add_tick(TickRecord(plan_version=version, at=now, body={}))
    catalog.add_event(Event(at=now, kind="controller_started", subject="trial", message=""))
