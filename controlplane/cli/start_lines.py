"""What ``modelless up`` shows of its start: a line for each step, and in the end where to go."""

import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.console import Console
from rich.markup import escape

from controlplane.cli.asking.example_digit import EXAMPLE, THREE
from controlplane.cli.render.words import left_words
from controlplane.settings import Settings

if TYPE_CHECKING:
    from controlplane.building.types import Progress

err = Console(stderr=True, highlight=False)
NOTHING_YET = (
    "Nothing is registered yet: `modelless register MODEL.onnx --task NAME --eval ROWS.npz`\n"
    "`modelless register --help` explains it; `modelless up --example digits` makes examples first"
)

STEPS = frozenset({"train", "measure"})
"""Kinds of steps whose progress a log shows, a line for each."""


@contextmanager
def step(title: str, spent_s: float = 0.0) -> Iterator[Callable[[str], None]]:
    """One line per step of the start-up: a spinner while it runs, then what came of it."""
    began = time.monotonic() - spent_s
    said: list[str] = []
    if err.is_terminal:
        with err.status(f"{title} ..."):
            yield said.append
    else:
        yield said.append
    spent = time.monotonic() - began
    err.print(f"  [green]✓[/] {title:<11} {' '.join(said)}  [dim]{spent:,.1f} s[/]", soft_wrap=True)


@contextmanager
def progress(title: str) -> "Iterator[Callable[[Progress], None]]":
    """A bar on a terminal; elsewhere a line per model that is trained or measured."""
    from controlplane.cli.render.bars import WorkBar

    said, began = [""], time.monotonic()
    with WorkBar(title, err) as bar:

        def show(at: "Progress") -> None:
            left = left_words(at.done, at.total, time.monotonic() - began)
            share = f"{100 * at.done // at.total:3d} %" if at.total else ""
            # What is left of all stands beside the bar: of one step it would only contradict that.
            bar.show(
                at.done, at.total, at.message.partition(", about ")[0], so_far=share, left=left
            )
            what = at.message.partition(":")[0]
            over = at.done == at.total
            if not err.is_terminal and what != said[0] and at.step in STEPS and not over:
                said[0] = what
                tell(f"{share or '     '}  {what}" + (f", {left}" if left else ""))

        yield show


def warn(sentence: str) -> None:
    """What is not as it should be; the start goes on."""
    err.print(f"  [yellow]![/] {escape(sentence)}", soft_wrap=True)


def tell(sentence: str) -> None:
    """What a step is at."""
    err.print(f"    {escape(sentence)}", soft_wrap=True)


def hello(
    settings: Settings,
    url: str,
    seconds: float,
    tasks: Collection[str],
    texts: Collection[str] = (),
    *,
    pairs: Collection[str] = (),
    at_terminal: bool = True,
) -> None:
    """Where the gateway is reached, and what to do first.

    Args:
        tasks: that have variants, by the names that clients ask.
        texts: those of them that take texts.
        pairs: those of these that take pairs of them.
        at_terminal: somebody could press keys.
    """
    token = ' -H "Authorization: Bearer $MODELLESS_API_TOKEN"' if settings.api_token else ""
    err.print(f"\nReady in {seconds:,.1f} s")
    err.print(f"  Dashboard   [bold]{url}/[/]", soft_wrap=True)
    err.print(f"  Gateway     {url}", soft_wrap=True)
    if settings.grpc_port:
        where = urlsplit(url).netloc.rpartition(":")[0]
        err.print(f"  gRPC        {where}:{settings.grpc_port}", soft_wrap=True)
    err.print(f"  API         {url}/docs", soft_wrap=True)
    err.print(f"  Metrics     {url}/metrics", soft_wrap=True)
    if EXAMPLE in tasks:
        err.print("\nAsk what a handwritten 3 shows:")
        name = own_name(shutil.which("modelless"), Path(sys.executable), Path.cwd())
        _paste(f"  {name} query {EXAMPLE} --latency-ms 50 --accuracy 0.97")
        err.print("or over HTTP:")
        _paste(example_command(url, bool(settings.api_token)))
    elif texts:
        err.print("\nAsk a task:")
        first = min(texts)
        row = '["a text", "another one"]' if first in pairs else '"a text"'
        body = f'{{"task": "{first}", "inputs": [{row}]}}'
        _paste(f"  curl -s{token} {url}/v1/query -d '{body}'")
    elif tasks:
        err.print("\nWhat a task takes, to be asked at /v1/query:")
        _paste(f"  curl -s{token} {url}/v2/models/{min(tasks)}")
    else:
        err.print(f"\n{NOTHING_YET}", markup=False, soft_wrap=True)
    err.print(f"\n{'Ctrl-C' if at_terminal else '`modelless down`'} stops everything.")


def own_name(found: str | None, python: Path, here: Path) -> str:
    """How this command is called from a shell: by its name, or by its path from ``here``.

    Args:
        found: where a shell finds it by its name.
        python: the interpreter, beside which it is installed.
    """
    beside = python.with_name("modelless")
    if found is not None:
        return "modelless"
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def _paste(command: str) -> None:
    """A command as it is, where everything else is said: standard output is Ray's by now."""
    err.print(command, soft_wrap=True, markup=False, highlight=False)


def example_command(url: str, asks_for_token: bool = False) -> str:
    """A query to the digits task that can be pasted: a handwritten 3."""
    pixels = ",".join(map(str, THREE))
    slo = '"slo": {"latency_ms": 50, "accuracy": 0.97}'
    token = ' -H "Authorization: Bearer $MODELLESS_API_TOKEN"' if asks_for_token else ""
    body = f'{{"task": "{EXAMPLE}", {slo},\n    "inputs": [[{pixels}]]}}'
    return f"  curl -s{token} {url}/v1/query -d '{body}'"
