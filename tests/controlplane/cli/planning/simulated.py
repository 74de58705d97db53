"""Planning files, and a run of ``modelless simulate`` over them."""

from pathlib import Path

from tests.controlplane.cli.shell import Ended, Shell
from tests.controlplane.files.builders import RATES

KEYS = [
    "policy", "seed", "requests", "in_time", "late", "rejected", "violation_ratio",
    "effective_accuracy", "cost_usd", "busy_ratio", "loads", "evictions", "load_s_total",
    "decision_us_p50", "decision_us_p99", "plan_ms_p50", "plan_ms_p99",
]  # fmt: skip
MEASURED = {"decision_us_p50", "decision_us_p99", "plan_ms_p50", "plan_ms_p99"}


def steady(seconds: int) -> str:
    """A trace of 20 queries per second."""
    header = RATES.split("\n", maxsplit=1)[0]
    return f"{header}\n" + "".join(f"{s},digits,20,100,\n" for s in range(seconds))


def simulate(shell: Shell, paths: dict[str, Path], *options: str) -> Ended:
    names = ("catalog", "devices", "trace")
    files = [text for name in names for text in (f"--{name}", str(paths[name]))]
    return shell("simulate", *files, *options)


def busy(seconds: int) -> str:
    """A trace of 150 queries per second, which can wait for a second."""
    header = RATES.split("\n", maxsplit=1)[0]
    return f"{header}\n" + "".join(f"{s},digits,150,1000,\n" for s in range(seconds))
