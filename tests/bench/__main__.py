"""The numbers of docs/decisions, on this machine: ``make bench`` or ``python -m tests.bench``.

Takes about four minutes, and some more the first time. ``make bench ARGS="--quick"`` takes one.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from controlplane.settings import load_settings
from tests.bench import machine
from tests.bench.figures import Figure, middle
from tests.bench.serving import serve
from tests.bench.serving.parts import choices
from tests.bench.serving.state import copy_filled
from tests.integration.deployment import deployed, short_directory

TITLES = {
    "first": "First start, on an empty state directory",
    "start": "Later starts, catalog filled",
    "select": "Choosing a variant",
    "latency": "One query in flight, one row, default SLO",
    "shares": "Where it goes, mean",
    "breakdown": "Parts of it, each by itself",
    "saturation": f"{serve.IN_FLIGHT} queries in flight, one row, smallest variant",
    "goodput": f"Poisson arrivals, {serve.OPEN_CONNECTIONS} connections, answered within "
    f"{serve.WITHIN_MS:g} ms of being due",
    "memory": "Memory, after all of the above",
}
SERVING = ("select", "latency", "shares", "breakdown", "saturation", "goodput", "memory")
"""Sections that are measured on one running deployment, in this order."""


class Report:
    """Prints figures as they are found and keeps them for ``--json``."""

    def __init__(self) -> None:
        self.machine = machine.describe()
        self.others_cores: dict[str, float] = {}
        self.sections: dict[str, list[Figure]] = {}
        print(self.machine)

    def look_around(self) -> None:
        """Watch for a second whether the machine is idle."""
        with machine.Others() as others:
            time.sleep(1)
        self.note("before", others)

    def note(self, when: str, others: machine.Others) -> None:
        """Say so if others computed."""
        busy = self.others_cores[when] = others.cores
        if busy > machine.IDLE_CORES:
            print(
                f"NOT IDLE: others use {busy:.1f} cores; the numbers are worse than they could be"
            )

    def add(self, section: str, figures: Sequence[Figure]) -> None:
        print(f"\n{TITLES[section]}")
        for figure in figures:
            print(figure)
        sys.stdout.flush()
        self.sections[section] = list(figures)

    def write(self, path: Path) -> None:
        sections = {
            name: [{**asdict(figure), "reached": figure.reached} for figure in figures]
            for name, figures in self.sections.items()
        }
        found = {"machine": self.machine, "others_cores": self.others_cores, "sections": sections}
        path.write_text(json.dumps(found, indent=1) + "\n")


def serving(report: Report, wanted: Sequence[str], state: Path, effort: serve.Effort) -> None:
    """Start as often as asked; the last deployment stays for everything else."""
    starts = []
    further = effort.runs - 1 if "start" in wanted else 0
    for _ in range(further):
        with serve.started(state) as (_, took_s):
            starts.append(took_s)
    settings = load_settings(state_dir=state)
    with ExitStack() as until_measured:
        running, took_s = until_measured.enter_context(serve.started(state))
        if "start" in wanted:
            name = "command to first answer"
            report.add("start", [middle(name, [*starts, took_s], "s", at_most=20)])
        measured: dict[str, Callable[[], list[Figure]]] = {
            "select": lambda: choices(settings, effort.runs),
            "latency": lambda: serve.latency(running, effort),
            "shares": lambda: serve.shares(running, effort),
            "breakdown": lambda: serve.breakdown(running, effort),
            "saturation": lambda: serve.saturation(running, effort),
            "goodput": lambda: serve.goodput(running, effort),
        }
        for section, measure in measured.items():
            if section in wanted:
                with machine.Others() as others:
                    figures = measure()
                report.add(section, figures)
                report.note(section, others)
        loaded = serve.memory(running) if "memory" in wanted else []
    if loaded:
        with deployed(state.parent / "empty") as idle:
            report.add("memory", [*serve.memory_idle(idle), *loaded])


def main() -> None:
    arguments = _arguments()
    wanted = arguments.only.split(",") if arguments.only else ["start", *SERVING]
    if arguments.first:
        wanted = ["first", *wanted]
    effort = serve.QUICK if arguments.quick else serve.THOROUGH
    report = Report()
    with short_directory() as home:
        report.look_around()
        state = copy_filled(home, arguments.fresh)
        if "first" in wanted:
            report.add("first", serve.first_start(home))
        if set(wanted) - {"first"}:
            serving(report, wanted, state, effort)
    if arguments.json:
        report.write(arguments.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", metavar="NAME,...", help=f"of: {', '.join(TITLES)}")
    parser.add_argument("--first", action="store_true", help="a first start, too; trains models")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="measure the catalog anew, for when the machine was busy the last time",
    )
    parser.add_argument("--quick", action="store_true", help="each once and for a second")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",") if arguments.only else ()) - TITLES.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(TITLES)}")
    return arguments


if __name__ == "__main__":
    main()
