"""What a plan, the inventory, a tick and an event may be, and who may write a plan."""

import json
from typing import Any

from variants.catalog.validity.plain_values import check_count, check_name, check_storable
from variants.errors import InvalidInput, StaleEpoch
from variants.types import Event, Plan, TickRecord

MAX_WORKERS = 10_000
"""The most workers of one device kind that can be asked for."""


def check_inventory(device_kind: str, count: int) -> None:
    """Raise ``InvalidInput`` unless so many workers of a kind may be asked for."""
    check_name(device_kind, "a device kind")
    if not 0 <= count <= MAX_WORKERS:
        raise InvalidInput(f"{count:,} workers are not possible; choose 0 to {MAX_WORKERS:,}")


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be written down: shares that are not in [0, 1], odd text."""
    for placement in plan.placements:
        where = f"variant {placement.variant!r} on worker {placement.worker!r}"
        if not 0 <= placement.share <= 1:
            raise InvalidInput(f"the share of {where} is {placement.share}, not in [0, 1]")
    for kind, count in plan.workers.items():
        check_count(count, f"the number of {kind!r} workers in the plan", least=0)
    check_storable(plan.created_at, "the time of the plan")


def check_leads(epoch: int, newest: int, what: str) -> None:
    """Refuse what somebody writes who leads no more.

    Args:
        epoch: in which the writer led.
        newest: in which somebody leads now; 0: nobody ever led.
        what: is written.

    Raises:
        StaleEpoch: another one leads.
    """
    if epoch != newest or not newest:
        raise StaleEpoch(f"{what} of epoch {epoch} came; the leader's is {newest}")


def check_event(event: Event) -> None:
    """Refuse an event whose text cannot be stored."""
    for text in (event.at, event.kind, event.subject, event.message):
        check_storable(text, "an event")


def plain_body(record: TickRecord) -> tuple[dict[str, Any], int]:
    """The body of a tick as every catalog gives it back: a copy, made of plain JSON values; and how
    many characters it has as JSON.

    Raises:
        InvalidInput: there is something in it that JSON cannot say, such as NaN or a set.
    """
    check_storable(record.at, "the time of a tick")
    try:
        written = json.dumps(dict(record.body), allow_nan=False)
        return dict(json.loads(written)), len(written)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the body of a tick is not plain JSON: {error}") from error
