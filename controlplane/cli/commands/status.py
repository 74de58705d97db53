"""``modelless status``: what runs, and whether that is what is wanted."""

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.markup import escape

from controlplane.cli.commands.models.canary import canary_sentences
from controlplane.cli.commands.nodes import node_news, nodes_of
from controlplane.cli.commands.workers import places_of, state_of
from controlplane.cli.gateway_client import Client, UrlOption, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import (
    WITHOUT_KEY,
    hanging,
    percent,
    printable,
    table,
    usd,
    wanted_words,
)
from controlplane.cli.render.event_lines import (
    JOINED,
    LATELY_S,
    LEFT,
    LOST,
    MOST_ROWS,
    lost_workers,
)
from controlplane.cli.render.task_words import unanswered
from controlplane.cli.start_lines import NOTHING_YET, err
from planner.planning_settings import DEFAULTS
from variants.errors import NotFound, StateUnavailable
from variants.figures import counted

out = Console(highlight=False)
STATES = ("answered", "control_loop", "cores", "storage", "certificate", "client_keys")
"""Fields of a plan that have a sentence where something is wrong."""
TASK_BEGINS = re.compile(r"(?<=\.) (?=[a-z0-9][a-z0-9._-]*: [\d,]+ of )")
COLOUR = {
    "as_planned": "green", "down": "red", "met": "green", "mostly_missed": "red",
    "unwritable": "red", "certificate_ended": "red", "tasks_unanswered": "red",
}  # fmt: skip
"""Of the fleet and of what clients experience; yellow for what is between."""
COUNTED = ("QUERIES", "LATE", "REFUSED", "INFEASIBLE")
MOST_TASKS = 25
"""So many are shown of more, as a screen has room for."""
MOST_QUARANTINED = 5


def status(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """What is running: workers, what they have loaded, and how well SLOs are met.

    While the database or the live state is away, it shows what is known without, says so, and ends
    with 1.
    """
    with connect(url) as client:
        found, away = _found(client)
        if away is not None and not found["ready"]:
            raise away
    emit(found, output, lambda: _status_table(found))
    if away is not None:
        goes_on = "while it does not answer, queries are answered with what is loaded"
        raise StateUnavailable(f"{away.message.rstrip('.')}; {goes_on}") from away


def _found(client: Client) -> tuple[dict[str, Any], StateUnavailable | None]:
    """What ``status`` prints as JSON, and why some of it is null: the catalog or the live state
    does not answer the gateway."""
    index = client.post("/v2/repository/index", {})
    found: dict[str, Any] = {
        "url": client.url,
        "ready": client.ready(),
        "workers": client.workers(),
        "tasks": with_readiness(_listed(index), index),
        "clients": client.get("/v1/clients")["clients"],
        **dict.fromkeys(("slo", "service", "nodes", "plan", "advice", "usd_per_hour")),
        "canaries": [],
        "lost": [],
    }

    def from_live_state() -> None:
        slo = client.get("/v1/slo")
        found["slo"], found["service"] = slo["tasks"], slo.get("standing")  # older: none
        found["nodes"] = nodes_of(client)

    def from_catalog() -> None:
        tasks = client.get("/v1/tasks")["tasks"]
        found["plan"] = client.get("/v1/plan")
        devices = client.get("/v1/devices")
        found["advice"] = devices.get("advice", [])
        found["usd_per_hour"] = hourly_price(found["workers"], devices["devices"])
        with contextlib.suppress(NotFound):  # a gateway of an earlier release
            found["canaries"] = client.get("/v1/canaries")["canaries"]
        found["tasks"] = with_readiness(tasks, index)
        since = datetime.now(UTC) - timedelta(seconds=LATELY_S)
        kinds = [LOST, JOINED, LEFT]
        told = client.get("/v1/events", kind=kinds, since=since.isoformat(), limit=MOST_ROWS)
        # A gateway of an earlier release does not filter.
        events = [row for row in told["events"][::-1] if row["kind"] in kinds]
        found["lost"] = lost_workers([row for row in events if row["at"] >= since.isoformat()])

    away = None
    for read in (from_live_state, from_catalog):
        try:
            read()
        except StateUnavailable as error:
            away = error
    return found, away


def hourly_price(
    workers: Sequence[Mapping[str, Any]], devices: Sequence[Mapping[str, Any]]
) -> float | None:
    """What the workers that run cost in USD per hour; None where a kind has no known price."""
    prices = {one["name"]: one["usd_per_hour"] for one in devices}
    each = [prices.get(worker["device_kind"]) for worker in workers]
    known = [price for price in each if price is not None]
    return sum(known) if len(known) == len(each) else None


def with_readiness(
    tasks: Sequence[Mapping[str, Any]], index: Sequence[Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Tasks, each with how many of its variants are loaded somewhere."""
    loaded = Counter(row["name"] for row in index if row["state"] == "READY")
    return [{**task, "loaded": loaded[task["name"]]} for task in tasks]


def _listed(index: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """What the gateway itself knows of tasks: their names, and how many variants they have."""
    variants = Counter(row["name"] for row in index)
    return [{"name": name, "variants": count} for name, count in sorted(variants.items())]


def _status_table(found: Mapping[str, Any]) -> None:
    _print_standing(found)
    _print_workers(found["workers"])
    if found["plan"] is not None and not found["tasks"]:
        out.print(f"\n{NOTHING_YET}", markup=False, soft_wrap=True)
    else:
        print_tasks(found["tasks"], found["slo"])
    _print_clients(found["clients"])


def _print_standing(found: Mapping[str, Any]) -> None:
    """What runs, and all that is to be said of it in sentences."""
    plan = found["plan"] or {"standing": None}
    version = f"plan {plan['version']}" if plan.get("version") else "no plan"
    if found["plan"] is None:
        version = "the plan is not known"
    ready = "ready" if found["ready"] else "stopping"
    out.print(f"[bold]modelless[/] at {found['url']}, {ready}, {version}")
    standing = plan["standing"]
    states = [plan.get(name) or {} for name in STATES]  # an older gateway says less
    said = [state for state in states if state.get("sentence")]
    for each in filter(None, (standing, found["service"], *said)):
        colour = COLOUR.get(each["level"], "yellow")
        hanging(out, f"[{colour}]●[/]", _plain(_by_task(each["sentence"])))
    for row in standing["kinds"] if standing else ():
        out.print(f"  [dim]{escape(wanted_words(row))}[/]", soft_wrap=True)
    if (price := found.get("usd_per_hour")) and found["workers"]:
        out.print(f"  [dim]cost: {usd(price)} USD per hour for what runs[/]", soft_wrap=True)
    if headroom := plan.get("headroom"):
        hanging(out, " ", _plain(headroom["sentence"]), "dim")
    if split := plan.get("split", ""):
        hanging(out, " ", _plain(split), "dim")
    for sentence in plan.get("rules", ()):
        hanging(out, "  [yellow]![/]", _plain(sentence))
    for sentence in (*plan.get("zones", ()), *canary_sentences(found["canaries"])):
        hanging(out, " ", _plain(sentence), "dim")
    news = node_news(found["nodes"]) if found["nodes"] else []
    idle = [f"{task['name']}: {why}" for task in found["tasks"] if (why := unanswered(task))]
    kept_out = quarantined(found["workers"])
    for sentence in (*found["lost"], *kept_out, *idle, *news, *(found["advice"] or ())):
        hanging(out, "  [yellow]![/]", _plain(sentence))


def quarantined(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each variant that workers keep out; beyond ``MOST_QUARANTINED`` how many."""
    where = Counter(
        f"{replica['task']}/{replica['variant']}"
        for worker in workers
        for replica in worker["replicas"]
        if replica["state"] == "quarantined"
    )
    said = [
        f"{variant} is in quarantine on {counted(where[variant], 'worker')} of {len(workers)}:"
        " `modelless quarantine list` says why"
        for variant in sorted(where)
    ]
    more = len(said) - MOST_QUARANTINED
    shown = said[:MOST_QUARANTINED]
    return [*shown, f"{counted(more, 'variant')} more in quarantine"] if more > 0 else shown


def _by_task(sentence: str) -> str:
    """On a terminal each task of which a sentence speaks begins a line, as on the page."""
    return TASK_BEGINS.sub("\n", sentence) if out.is_terminal else sentence


def _plain(sentence: str) -> str:
    """A sentence that is no markup and steers no terminal."""
    return escape(printable(sentence))


def _print_workers(workers: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    where, places = places_of(workers)
    for worker, place in zip(workers, places, strict=True):
        ready = sum(replica["state"] == "ready" for replica in worker["replicas"])
        rows.append(
            (
                worker["worker"],
                worker["device_kind"],
                *place,
                state_of(worker),
                str(ready),
                f"{worker['reserved_mib']:,.0f} of {worker['memory_mib']:,.0f} MiB",
                f"{100 * worker['busy_ratio']:.0f} %",
            )
        )
    out.print()
    columns = ("WORKER", "DEVICE", *where, "STATE", "VARIANTS", "MEMORY", "BUSY")
    table(columns, rows, empty="No worker is running.")
    usual = {"", DEFAULTS.eviction}  # an older gateway does not say
    if rules := sorted({worker.get("eviction", "") for worker in workers} - usual):
        out.print(
            f"[dim]Where memory is short, variants leave by the rule {' or '.join(rules)}.[/]"
        )
    for worker in workers:
        for warning in worker.get("warnings", ()):
            err.print(f"{worker['worker']}: {warning}", markup=False, soft_wrap=True)


def print_tasks(
    tasks: Sequence[Mapping[str, Any]], slo: Sequence[Mapping[str, Any]] | None
) -> None:
    """``slo`` is how queries of each task ended; None where that is not known. Of many tasks those
    are shown that want a look."""
    asked = {row["task"]: row for row in slo or ()}
    # The name of several lengths stands for tasks that are counted by themselves.
    shown = [task for task in tasks if not task.get("lengths")]
    many = len(shown) > MOST_TASKS
    if many:
        shown.sort(key=lambda task: _wants_a_look(task, asked))
    rows = []
    for task in shown[:MOST_TASKS]:
        row = asked.get(task["name"])
        counts = ["-"] * len(COUNTED) if slo is None else _counts(row)
        loaded = f"{task['loaded']} of {task['variants']}"
        rows.append((task["name"], loaded, *counts, percent(row.get("share_met") if row else None)))
    out.print()
    out.print("[dim]Queries since the gateways started; infeasible: no variant can do it[/]")
    columns = ("TASK", "LOADED", *(f">{name}" for name in COUNTED), ">SLO MET")
    table(columns, rows, empty="No tasks.")
    if many:
        rest = shown[MOST_TASKS:]
        idle = sum(not asked.get(task["name"], {}).get("requests") for task in rest)
        whole = sum(task["loaded"] == task["variants"] for task in rest)
        out.print(
            f"[dim]{len(rest)} tasks more, of which no more queries were late or refused: nobody"
            f" asked for {idle}, and {whole} are loaded as a whole; -o json has all[/]",
            soft_wrap=True,
        )


def _wants_a_look(
    task: Mapping[str, Any], asked: Mapping[str, Mapping[str, Any]]
) -> tuple[int, bool, int, str]:
    """Where a task stands in a long list: those first of which most queries were late or refused,
    then those that are not loaded, then those that most is asked of."""
    row = asked.get(task["name"], {})
    missed = row.get("late", 0) + row.get("refused", 0) - row.get("infeasible", 0)
    return (-missed, task["loaded"] >= task["variants"], -row.get("requests", 0), task["name"])


def _print_clients(clients: Sequence[Mapping[str, Any]]) -> None:
    if clients:
        out.print()
        counted = ("asked", "answered", "refused")
        table(
            ("CLIENT", *(name.upper() for name in counted)),
            (
                (row["name"] or WITHOUT_KEY, *(str(row[name]) for name in counted))
                for row in clients
            ),
            empty="",
        )


def _counts(row: Mapping[str, Any] | None) -> list[str]:
    """The cells below ``COUNTED``: what is infeasible was refused, or answered by best effort; it
    stands apart here."""
    if row is None:
        return ["0"] * len(COUNTED)
    infeasible = row.get("infeasible", 0)
    refused = row["refused"] - infeasible
    infeasible += row.get("infeasible_answered", 0)
    return [f"{count:,}" for count in (row["requests"], row["late"], refused, infeasible)]
