"""What the simulator says of a trace that an installation was asked to answer.

The simulator plays what the installation exports of itself: its live variants with what was
measured of them, the workers that run, its objective and its eviction rule. It begins with an empty
fleet and the installation does not, so the simulated trace begins later: nothing is asked until all
that fits is loaded, and what that time costs is left out.
"""

import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.asking.rows import QueryRows
from controlplane.cli.commands.planning.export import device_rows, known_catalog, planning_text
from controlplane.cli.gateway_client import Client, at
from controlplane.cli.replaying.held_texts import held_by_some
from planner.eviction.registry import RULES
from planner.planning_settings import DEFAULTS
from planner.types import Objective
from variants.errors import InvalidInput, ModellessError, StateUnavailable

if TYPE_CHECKING:
    from planner.simulation.results import Report
    from planner.simulation.trace import Trace

Row = Mapping[str, Any]

LEAST_LEAD_S = 5.0
"""The simulated trace begins so much later at least; or, if that is longer, as long as all loads
take one after the other."""
MOST_LEAD_S = 600.0
TICK_S = 1.0
"""MODELLESS_TICK_S by default: an installation's control loop turns once a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The workers that run, and what they cost."""

    running: Mapping[str, int]
    """By device kind."""
    usd_per_hour: float

    def cost_usd(self, seconds: float) -> float:
        return self.usd_per_hour * seconds / 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the simulator has to know of an installation."""

    catalog: Sequence[Row]
    """Rows of a catalog file."""
    devices: Sequence[Row]
    """Rows of a devices file, with the workers that run."""
    fleet: Fleet
    objective: Objective
    eviction: str
    notes: Sequence[str] = field(default=())
    """What the installation does otherwise than what is simulated, a sentence each."""


def fleet_of(client: Client) -> Fleet:
    """The workers that run now."""
    prices = {row["name"]: row["usd_per_hour"] for row in client.get("/v1/devices")["devices"]}
    running = {
        row["device_kind"]: row["running"] for row in client.get("/v1/inventory")["inventory"]
    }
    cost = sum(count * prices.get(kind, 0.0) for kind, count in running.items())
    return Fleet(
        running={kind: count for kind, count in running.items() if count}, usd_per_hour=cost
    )


def _why_not_known(client: Client, task: str) -> str:
    """Why a task cannot be simulated that has no rows in a catalog file."""
    lengths = client.get(at("v1", "tasks", task)).get("lengths")
    if lengths is None:
        return f"task {task} has no live variant that was measured"
    return (
        f"rows of task {task} differ in length, and the simulator does not know how long they are:"
        f" have the trace ask for one of {', '.join(lengths['buckets'].values())}"
    )


def known_of(
    client: Client,
    asked: Iterable[str],
    tasks: Mapping[str, Row],
    rows: Mapping[str, QueryRows],
) -> Known:
    """What an installation says of itself.

    Args:
        asked: the tasks that the trace asks for.
        tasks: all, by name.
        rows: what each task is asked with.

    Raises:
        InvalidInput: nothing could be simulated with it.
        ModellessError: what the gateway answers.
    """
    catalog = known_catalog(client)
    if missing := set(asked) - {str(row["task"]) for row in catalog}:
        raise InvalidInput(f"--compare: {_why_not_known(client, min(missing))}")
    inventory = client.get("/v1/inventory")["inventory"]
    running = [{**row, "asked": row["running"]} for row in inventory]
    fleet = fleet_of(client)
    if not fleet.running:
        raise InvalidInput("--compare: no worker is running, so there is no fleet to simulate")
    eviction, objective = _eviction(client), _objective(client)
    return Known(
        catalog=catalog,
        devices=device_rows(client.get("/v1/devices")["devices"], running),
        fleet=fleet,
        objective=objective,
        eviction=eviction,
        notes=(
            *_notes(client, inventory, set(asked), objective),
            *filter(None, (held_by_some(client, tasks[one], rows[one]) for one in sorted(rows))),
        ),
    )


def _objective(client: Client) -> Objective:
    """What its plans optimise, as the last turn of the control loop says."""
    ticks = client.get("/v1/ticks", limit=1)["ticks"]
    said = ticks[0]["body"].get("objective") if ticks else None
    return Objective(said) if said in {one.value for one in Objective} else DEFAULTS.objective


def _eviction(client: Client) -> str:
    rules = {row.get("eviction", "") for row in client.workers()} & set(RULES)
    return rules.pop() if len(rules) == 1 else DEFAULTS.eviction


def _notes(
    client: Client, inventory: Sequence[Row], asked: set[str], objective: Objective
) -> Iterable[str]:
    if any(row["source"] == "plan" for row in inventory):
        yield (
            "Plans decide here how many workers run; what is simulated is the fleet as it was when"
            " the replay began, throughout."
        )
    prefers = replace(DEFAULTS, objective=objective).prefer
    others = sorted(
        row["name"]
        for row in client.get("/v1/tasks")["tasks"]
        if row["name"] in asked and row["slo"]["prefer"] != prefers
    )
    if others:
        yield (
            f"Simulated queries prefer {prefers}, what plans optimise; here those of"
            f" {', '.join(others)} prefer something else by default, so they choose for themselves."
        )
    try:
        lately = client.get("/v1/slo")
    except StateUnavailable:
        return
    others_asked = sum(
        row["lately"]["requests"] for row in lately["tasks"] if row.get("lately") is not None
    )
    if others_asked:
        yield (
            f"Queries that had been asked here in the {lately['lately_s']:,.0f} s before:"
            f" {others_asked:,}. The installation knows that demand, and the simulator does not."
        )


def simulated(
    known: Known, trace: "Trace", seed: int, progress: Callable[[float], None] | None = None
) -> "tuple[Report, float]":
    """What the simulator makes of a trace under our own policy, and how much later it began, in s.

    Raises:
        InvalidInput: the simulator cannot read what the installation exports.
    """
    from controlplane.cli.commands.planning.simulate import collected_rarely
    from controlplane.files.catalog import catalog_snapshot, read_catalog, read_devices
    from planner.simulate import simulate
    from planner.simulation.setting import Setting

    with tempfile.TemporaryDirectory(prefix="modelless-replay-") as folder:
        catalog, devices = Path(folder) / "catalog.csv", Path(folder) / "devices.csv"
        catalog.write_text(planning_text(known.catalog))
        devices.write_text(planning_text(known.devices))
        kinds = read_devices(devices)
        snapshot = catalog_snapshot(read_catalog(catalog, kinds, devices=devices), kinds)
    setting = Setting(
        catalog=snapshot,
        kinds=kinds,
        objective=known.objective,
        elastic=False,
        eviction=known.eviction,
        seed=seed,
        tick_s=TICK_S,
    )
    lead_s = lead_of(known.catalog)
    later = replace(trace, arrival_s=array("d", (at_s + lead_s for at_s in trace.arrival_s)))
    with collected_rarely():
        report = simulate(setting, later, "modelless", clock=time.perf_counter, progress=progress)
    return replace(report, cost_usd=report.cost_usd - known.fleet.cost_usd(lead_s)), lead_s


def lead_of(catalog: Iterable[Row]) -> float:
    """How long the simulated fleet may load before the first query, in s."""
    loads = {
        (row["task"], row["variant"], row["device_kind"]): row["load_s"] or 0.0 for row in catalog
    }
    return min(MOST_LEAD_S, max(LEAST_LEAD_S, float(sum(loads.values()))))


def same_fleet(client: Client, before: Fleet) -> bool:
    """Whether the same workers run still; not where nobody says so."""
    try:
        return fleet_of(client).running == before.running
    except ModellessError:
        return False
