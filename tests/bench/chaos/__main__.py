"""``python -m tests.bench.chaos``: faults, counted. See the package."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import machine
from tests.bench.chaos import models
from tests.bench.chaos.faults import FAULTS, NEEDS_NODES
from tests.bench.chaos.installation import Installation, Shape, started
from tests.bench.chaos.ledger import Figures
from tests.bench.chaos.trials import trial
from tests.integration.deployment import short_directory
from tests.ports import free_port

INSIDE = "MODELLESS_CHAOS_INSIDE"
"""Set in the process that runs in a namespace of its own."""
ISOLATED = ["--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
DISK_KIB = 256 * 1024


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.bench.chaos", description=__doc__)
    asked.add_argument("--trials", type=int, default=10, help="of each fault")
    asked.add_argument("--only", default="", help=f"some of: {', '.join(FAULTS)}")
    asked.add_argument("--seconds", type=float, default=60.0, help="that a fault lasts")
    asked.add_argument("--raylets", type=int, default=3, help="with workers; 0: a Ray of its own")
    asked.add_argument("--workers", type=int, default=3)
    asked.add_argument("--load", type=float, default=0.6, help="part of the capacity")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--json", default="chaos.json", help="where the figures are written")
    asked.add_argument("--measured", default="", help="a folder that keeps what was measured")
    asked.add_argument("--keep", default="", help="a folder that logs are copied to")
    chosen = asked.parse_args()
    names = [name for name in FAULTS if chosen.only in ("", name) or name in chosen.only.split(",")]
    if unknown := set(filter(None, chosen.only.split(","))) - FAULTS.keys():
        asked.error(f"there is no {sorted(unknown)}")
    if INSIDE not in os.environ:
        return _enter()
    return _run(chosen, names)


def _enter() -> int:
    """Run this again where nothing outside can be met or left behind."""
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    words = [sys.executable, "-m", "tests.bench.chaos", *sys.argv[1:]]
    # The shell takes in the processes that lost their parent.
    shell = ["sh", "-c", 'ip link set lo up && "$@"; exit $?', "chaos", *words]
    ran = subprocess.run(
        ["unshare", *ISOLATED, *mapped, *shell], env=os.environ | {INSIDE: "1"}, check=False
    )
    return ran.returncode


def _run(chosen: argparse.Namespace, names: list[str]) -> int:
    figures: dict[str, Figures] = {}
    measured = Path(chosen.measured).absolute() if chosen.measured else None
    qps = chosen.load * chosen.workers * models.WORKER_QPS
    shape = Shape(chosen.raylets, chosen.workers, free_port())
    where = f"{chosen.raylets} raylets with workers and a head" if chosen.raylets else "one raylet"
    print(f"{machine.describe()}\n{where}, {chosen.workers} workers, {qps:.0f} queries/s\n")
    with short_directory() as home:
        state = home / "s"
        state.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k,mode=700", "none", str(state)],
            check=True,
        )
        try:
            with started(shape, home, state, measured) as on:
                for name in names:
                    if name in NEEDS_NODES and not chosen.raylets:
                        continue
                    _try(on, name, figures, chosen, qps)
        finally:
            if chosen.keep:
                _keep(home, state, Path(chosen.keep))
            subprocess.run(["umount", "-l", str(state)], check=False)
    _table(figures)
    return int(any(found.wrong for found in figures.values()))


def _try(
    on: Installation, name: str, figures: dict[str, Figures], chosen: argparse.Namespace, qps: float
) -> None:
    found = figures[name] = Figures()
    for number in range(chosen.trials):
        try:
            on.until_whole(180.0)
            trial(
                on, name, FAULTS[name], found, qps=qps, hold_s=chosen.seconds,
                seed=chosen.seed + number, first=1 + sum(one.queries for one in figures.values()),
            )  # fmt: skip
            if chosen.keep:
                Path(chosen.keep).mkdir(parents=True, exist_ok=True)
                kept = f"{name.replace(' ', '-')}-{number}.jsonl"
                shutil.copy(on.home / "ledger.jsonl", Path(chosen.keep) / kept)
        except RuntimeError as error:
            found.notes[f"begun anew: {str(error).splitlines()[0]}"] += 1
            on.kill_all()
            on.start()
        _write(Path(chosen.json), chosen, qps, figures)
        print(f"{name} {number + 1}: {_row(found)}", file=sys.stderr, flush=True)


def _table(figures: dict[str, Figures]) -> None:
    print("| fault | trials | queries | answered | late | refused | reset | nobody there "
          "| starved | **wrong** | routing free, s | loss told, s | whole again, s |")  # fmt: skip
    print("|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    for name, found in figures.items():
        print(f"| {name} | {_row(found)} |")
    for name, found in figures.items():
        for note, count in found.notes.items():
            print(f"\n{name}: {note} ({count})", end="")
    print()


def _row(found: Figures) -> str:
    refused = ", ".join(f"{code} {count}" for code, count in found.refused.most_common())
    wrong = ", ".join(f"{why} {count}" for why, count in found.wrong.items()) or "0"
    cells = [
        f"{found.trials}", f"{found.queries}", f"{found.answered}", f"{found.late}", refused,
        f"{found.reset}", f"{found.unconnected}", f"{found.starved}", f"**{wrong}**",
        _times(found.routed_s), _times(found.reported_s), _times(found.back_s),
    ]  # fmt: skip
    return " | ".join(cells)


def _times(values: list[Any]) -> str:
    """Median and most, and how often it did not happen."""
    known = [value for value in values if value is not None]
    never = f", never {len(values) - len(known)}" if len(known) < len(values) else ""
    return f"{median(known):.1f}, {max(known):.1f}{never}" if known else "–"


def _write(path: Path, chosen: argparse.Namespace, qps: float, figures: dict[str, Figures]) -> None:
    found = {
        name: {what.name: getattr(one, what.name) for what in fields(one)}
        for name, one in figures.items()
    }
    about = {"machine": machine.describe(), "asked": vars(chosen), "qps": qps, "faults": found}
    path.write_text(json.dumps(about, indent=1) + "\n")


def _keep(home: Path, state: Path, to: Path) -> None:
    """Copy what was logged."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [one for one in names if one == "filler" or Path(folder, one).is_socket()]

    shutil.copytree(state, to / "state", dirs_exist_ok=True, ignore=left_out)
    for logs in [*home.glob("ray/session_2*/logs"), *state.glob("run/ray/session_2*/logs")]:
        shutil.copytree(logs, to / "ray", dirs_exist_ok=True, ignore_dangling_symlinks=True)


if __name__ == "__main__":
    sys.exit(main())
