"""One frame: an installation as lines of plain text that fit a width and a height."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.cli.render import clock, clock_cell, ms, percent, printable
from controlplane.cli.render.event_lines import event_lines
from controlplane.cli.screen.readings import Rates, Reading, variant_of
from controlplane.views.service_status import many_gave_up

Row = Mapping[str, Any]

GAP = "  "
MOST_SENTENCE = 3
"""Lines that one sentence may take."""
MOST_HEAD = 140
"""What stands at the right of the first line is not further away."""
LEAST_EVENTS = 3
"""Lines of events that other tables leave room for."""
LEAST_VARIANTS = 3
"""Where there is room for fewer, there are none."""
LATEST_SIZES = 3
"""Batch sizes of which the latencies are shown."""


def frame(
    reading: Reading, rates: Rates, now: datetime, width: int, height: int, *, stale: str = ""
) -> list[str]:
    """The lines of a frame, none longer than ``width`` and at most ``height`` of them.

    Args:
        stale: why it is not up to date, if so.
    """
    head = [*_head(reading, now, width, stale), ""]
    kinds = [*_table(KINDS, list(_kinds(reading)), width), ""]
    tasks, variants = list(_tasks(reading, rates)), list(_variants(reading, rates))
    left = height - len(head) - len(kinds) - 2 * 2 - LEAST_EVENTS
    # Tasks go before variants, which are many.
    shown_tasks = _first(tasks, max(1, left))
    left -= len(shown_tasks)
    lines = [*head, *_table(TASKS, shown_tasks, width), "", *kinds]
    if left // 2 >= LEAST_VARIANTS:
        lines += [*_table(VARIANTS, _first(variants, left // 2), width), ""]
    lines += _events(reading, max(1, height - len(lines)))
    return [_cut(line, width) for line in lines[:height]]


def _first(rows: list[list[str]], most: int) -> list[list[str]]:
    """The first rows, and how many more there are."""
    if len(rows) <= most:
        return rows
    return [*rows[: most - 1], [f"and {len(rows) - most + 1:,} more"]]


# -- what it says in sentences --------------------------------------------------------------------


def _head(reading: Reading, now: datetime, width: int, stale: str) -> Iterator[str]:
    plan = reading.plan
    made = "the plan is not known"
    if plan is not None:
        version = plan["version"]
        made = f"plan {version}, made {clock(plan['created_at'])}" if version else "no plan yet"
    left, right = f"modelless at {reading.url}", f"{made}   {now:%H:%M:%S} UTC"
    space = min(width, MOST_HEAD) - _cells(left) - _cells(right)
    if space >= 3:
        yield f"{left}{' ' * space}{right}"
    else:
        yield left
        yield right
    if stale:
        yield from _sentence(f"NOT UP TO DATE: {stale}", width)
    if reading.away:
        yield from _sentence(f"Not all is known: {reading.away}", width)
    for standing in (
        None if plan is None else plan["standing"],
        None if reading.slo is None else reading.slo.get("standing"),
        None if plan is None else plan.get("answered"),
        None if plan is None else plan.get("cores"),
        None if plan is None else plan.get("storage"),
        None if plan is None else plan.get("certificate"),
        None if plan is None else plan.get("control_loop"),
        None if plan is None else plan.get("client_keys"),
    ):
        if standing and standing["sentence"]:
            yield from _sentence(standing["sentence"], width)


def _sentence(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(printable(text), max(20, width), break_on_hyphens=False) or [""]
    if len(lines) > MOST_SENTENCE:
        lines = [*lines[: MOST_SENTENCE - 1], f"{lines[MOST_SENTENCE - 1]} ..."]
    return lines


# -- tables ---------------------------------------------------------------------------------------

TASKS = (
    "TASK", ">/S NOW", ">P50 MS", ">P95 MS", ">/S LATELY", ">IN TIME", ">LATE", ">REFUSED", "WHY",
)  # fmt: skip
KINDS = ("KIND", ">WORKERS", ">BUSY", ">MEMORY MIB", ">VARIANTS", ">QUEUED", ">WORK LEFT")
VARIANTS = ("VARIANT", ">WORKERS", ">BATCHES/S", ">QUEUED", "BATCH OF: MEAN / P95 MS")


def _tasks(reading: Reading, rates: Rates) -> Iterator[list[str]]:
    """Tasks, those that are asked most first; shares and counts are of the last minute or so."""
    slo = reading.slo or {"tasks": [], "lately_s": 0.0}
    asked = {row["task"]: row.get("lately") or {} for row in slo["tasks"]}
    known = {replica["task"] for _, replica in reading.replicas()} | asked.keys()
    seconds = slo.get("lately_s") or 0.0
    for task in sorted(known, key=lambda name: (-asked.get(name, {}).get("requests", 0), name)):
        row = asked.get(task, {})
        lately = row.get("requests", 0) / seconds if seconds else None
        refusals = sorted(row.get("refusals", {}).items(), key=lambda pair: -pair[1])
        yield [
            task,
            _rate(rates.queries(task)),
            *map(ms, reading.latencies_ms(task)),
            _rate(lately),
            percent(row.get("share_met")),
            f"{row.get('late', 0):,}",
            f"{row.get('refused', 0):,}",
            ", ".join([*(f"{code} {count:,}" for code, count in refusals), *_gave_up(row)]),
        ]


def _gave_up(row: Row) -> list[str]:
    """What is to be said of clients that do not wait for their answers, where these are many."""
    if not many_gave_up(row.get("gave_up", 0), row.get("requests", 0)):
        return []
    after_ms, slo_ms = row.get("gave_up_after_ms"), row.get("gave_up_slo_ms")
    when = ""
    if after_ms is not None and slo_ms is not None:
        when = f" after {after_ms:,.0f} of {slo_ms:,.0f} ms"
    return [f"{percent(row['share_gave_up'])} of clients gave up{when}"]


def _kinds(reading: Reading) -> Iterator[list[str]]:
    plan = reading.plan
    rows = {} if plan is None else {row["device_kind"]: row for row in plan["standing"]["kinds"]}
    workers: dict[str, list[Row]] = {}
    for worker in reading.workers or ():
        workers.setdefault(worker["device_kind"], []).append(worker)
    for kind in sorted(workers.keys() | {name for name, row in rows.items() if row["wanted"]}):
        found = workers.get(kind, [])
        wanted = rows[kind]["wanted"] if kind in rows else None
        busy = [worker["busy_ratio"] for worker in found]
        ready = Counter(
            replica["state"] for worker in found for replica in worker["replicas"]
        )  # a variant on two workers counts twice
        queued = sum(replica["queued"] for worker in found for replica in worker["replicas"])
        reserved = sum(worker["reserved_mib"] for worker in found)
        memory = sum(worker["memory_mib"] for worker in found)
        loading = f" (+{ready['loading']} loading)" if ready["loading"] else ""
        yield [
            kind,
            f"{len(found)}" if wanted is None else f"{len(found)} of {wanted}",
            f"{100 * sum(busy) / len(busy):.0f} %" if busy else "-",
            f"{reserved:,.0f} of {memory:,.0f}",
            f"{ready['ready']}{loading}",
            f"{queued:,}",
            f"{max((worker['backlog_us'] for worker in found), default=0) / 1_000:,.0f} ms",
        ]


def _variants(reading: Reading, rates: Rates) -> Iterator[list[str]]:
    """Variants that run, the busiest first."""
    found: dict[str, list[Row]] = {}
    for _, replica in reading.replicas():
        if replica["state"] == "ready":
            found.setdefault(variant_of(replica), []).append(replica)
    total = reading.batches()

    def order(name: str) -> tuple[float, int, str]:
        return -(rates.batches(name) or 0.0), -total[name], name

    for name in sorted(found, key=order):
        replicas = found[name]
        busiest = max(replicas, key=lambda replica: replica.get("batches", 0))
        latest = [
            f"{size}: {ms(mean)} / {ms(p95)}"
            for size, mean, p95 in busiest.get("latency", [])[:LATEST_SIZES]
        ]
        yield [
            name,
            str(len(replicas)),
            _rate(rates.batches(name)),
            f"{sum(replica['queued'] for replica in replicas):,}",
            GAP.join(latest),
        ]


def _events(reading: Reading, most: int) -> list[str]:
    if reading.events is None:
        return []
    lines = [
        printable(f"{clock_cell(at)[-8:]}  {kind.replace('_', ' ')}  {subject}: {message}")
        for _, at, kind, subject, message in event_lines(reading.events)
    ]
    return lines[::-1][:most] or ["Nothing has happened yet."]


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows below their columns; a column whose name starts with ``>`` is right-aligned. A row of
    one cell is a remark. Where it is too wide, the first column gives way."""
    names = [name.removeprefix(">") for name in columns]
    whole = [row for row in rows if len(row) == len(columns)]
    cells = [[printable(cell) for cell in row] for row in whole]
    widths = [
        max(_cells(cell) for cell in (name, *(row[index] for row in cells)))
        for index, name in enumerate(names)
    ]
    fixed = sum(widths[1:-1]) + len(GAP) * (len(widths) - 1)
    widths[0] = max(min(widths[0], width - fixed - min(widths[-1], 12)), 8)

    def line(row: Sequence[str]) -> str:
        parts = []
        for index, cell in enumerate(row):
            text = _cut(cell, widths[index])
            space = " " * (widths[index] - _cells(text))
            parts.append(space + text if columns[index].startswith(">") else text + space)
        return GAP.join(parts).rstrip()

    lines = [line(names)]
    made = iter(cells)
    for row in rows:
        lines.append(line(next(made)) if len(row) == len(columns) else row[0])
    return lines if rows else [f"{names[0]}: none"]


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    """A text that takes at most so many cells of a terminal."""
    if _cells(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"
