"""The table of ``variants list``, and what the cells of ``variants get`` share with it."""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.cli.render import (
    half_interval,
    joules,
    mib,
    ms,
    note,
    percent,
    rate,
    table,
    usd_per_million,
)
from variants.figures import figure

Row = Mapping[str, Any]
LIVE = (">LIVE MS", ">LIVE P95")
"""Columns of what workers say, shown where any says something."""
LIVE_PRICE = ">LIVE USD"
SPARE = (
    ">LOAD S",
    LIVE[1],
    ">P50 MS",
    ">± %",
    ">MIB",
    LIVE[0],
    ">J",
    ">LIVE ACCURACY",
    ">ROWS/S",
    LIVE_PRICE,
)
"""Columns of ``variants list`` that a narrow terminal does without, the first first."""
OF_WHAT = (
    "*: no other variant is as accurate, as fast and as small. ±: half of the accuracy's 95 %"
    " confidence interval.",
    "P50, P95 and USD/MILLION are the profile's: one row alone in its batch, again and again"
    " without a pause.",
    "LIVE is what such a row takes on the workers now, as run_ms in replies (unconfirmed: none ran"
    " yet); their cost_usd_per_1k is of the query's own batch, whose rows share it, and per 1,000.",
    "After a pause a batch takes some tenths of a millisecond longer. Of a model of microseconds"
    " that is most of the time, and of the cost.",
    "LIVE USD is USD/MILLION by LIVE MS: a ceiling of cost is compared with it, once enough batches"
    " have run.",
    "What can be served is counted by what batches take without a pause: variants get says it.",
)
"""What the numbers of ``variants list`` are, and why replies say others."""


def variant_table(rows: list[Row]) -> None:
    """Print a line for each variant and device kind, and what the numbers are."""
    named = [cells for row in rows for cells in _named_cells(rows, row)]
    left_out = table(
        list(named[0]) if named else [],
        (list(cells.values()) for cells in named),
        empty="No variant has a profile; `modelless profile` measures them."
        if rows
        else "There are no variants; `modelless register` makes them.",
        alike=("STAGE", "DEVICE"),
        spare=SPARE,
    )
    if not named:
        return
    if not left_out:
        print()
    live = LIVE[0] in named[0] and LIVE[0] not in left_out
    meanings = OF_WHAT if live else OF_WHAT[:2]
    for sentence in (*meanings, *_judged_by(rows), *_gone(rows), *_contradicted(rows)):
        note(sentence)


def _named_cells(rows: list[Row], row: Row) -> Iterator[dict[str, str]]:
    """Columns and cells of a variant's lines; all rows decide which columns there are."""
    devices = [device for each in rows for device in _there(each)]
    several = len({each["task"] for each in rows}) > 1
    energy = any(device.get("energy_j") is not None for device in devices)
    live = any(device.get("live_ms") is not None for device in devices)
    said = any(said_accuracy(each) for each in rows)
    for device in _there(row):
        beaten = device["dominated"] or row["stage"] not in ("live", "canary")
        yield {
            **({"TASK": row["task"]} if several else {}),
            "": "" if beaten else "*",
            "VARIANT": row["name"],
            "STAGE": row["stage"],
            ">ACCURACY": percent(row["accuracy"]),
            ">± %": half_interval(row),
            **({">LIVE ACCURACY": said_accuracy(row)} if said else {}),
            "DEVICE": device["device_kind"],
            ">P50 MS": _guess(device) + ms(device["p50_ms"]),
            ">P95 MS": _guess(device) + ms(device["p95_ms"]),
            **(dict(zip(LIVE, live_cells(device), strict=True)) if live else {}),
            ">ROWS/S": rate(device["best_rows_per_s"]),
            ">USD/MILLION": usd_per_million(device["price_usd_per_1k"]),
            **({LIVE_PRICE: usd_per_million(device.get("live_price_usd_per_1k"))} if live else {}),
            **({">J": joules(device["energy_j"])} if energy else {}),
            ">MIB": mib(device["memory_mib"]),
            ">LOAD S": figure(device["load_s"], 2),
        }


def _there(row: Row) -> list[Row]:
    """What a variant does on device kinds of which a worker is there or wanted; on all where that
    is none."""
    devices: list[Row] = row["devices"]
    return [device for device in devices if not device.get("gone")] or devices


def _gone(rows: list[Row]) -> list[str]:
    """The kinds that are left out."""
    gone = sorted(
        {one["device_kind"] for row in rows for one in row["devices"] if one not in _there(row)}
    )
    if not gone:
        return []
    return [
        f"Left out is what was measured on {', '.join(gone)}, of which no worker is there or"
        " wanted: variants get has it."
    ]


def _judged_by(rows: list[Row]) -> list[str]:
    """On how many rows accuracies were measured: few say little."""
    counts = sorted({row["accuracy_rows"] for row in rows})
    if counts[-1] == 0:
        return []
    on = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return [f"ACCURACY was measured on {on} held-out rows."]


def _contradicted(rows: list[Row]) -> Iterator[str]:
    """Of which variants clients say something else, which a narrow table has no column for."""
    for row in rows:
        if row.get("said_accuracy") is not None:
            said, measured = percent(row["said_accuracy"]), percent(row["accuracy"])
            holds = "clients say" if row.get("counted_accuracy") is not None else "was measured"
            yield (
                f"{row['name']}: clients say that {said} is right, {measured} was when it was"
                f" measured, and it is no chance; queries and plans go by what {holds}."
            )


def live_cells(row: Row) -> tuple[str, str]:
    """What workers say that it takes now: mean and 95th percentile."""
    if row.get("unconfirmed"):
        return ("unconfirmed", "-")
    mean_ms, p95_ms = row.get("live_ms"), row.get("live_p95_ms")
    return ("-" if mean_ms is None else ms(mean_ms), "-" if p95_ms is None else ms(p95_ms))


def _guess(device: Row) -> str:
    """What stands before a latency that was predicted, or measured before something changed."""
    if device.get("stale"):
        return "?"
    return "~" if device["source"] == "predicted" else ""


def said_accuracy(row: Row) -> str:
    """The accuracy by what clients have said, of how many rows, and whether queries go by it."""
    rows, counts = row.get("live_accuracy_rows"), row.get("counted_accuracy")
    if not rows:
        return "" if counts is None else f"{percent(counts)} counts"
    said = percent(row["live_accuracy"])
    if counts is None:
        return f"{said} of {rows:,}"
    return f"{said} of {rows:,}, {'' if percent(counts) == said else f'{percent(counts)} '}counts"
