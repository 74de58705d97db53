"""The picture of the page that README.md shows: ``python -m tests.bench.live.page_picture``.

Two workers of one core serve the example task, and are asked digits for some minutes: at a rate
that rises and falls, with floors of accuracy and deadlines of several kinds. Then a browser without
a window opens the page, and its upper part is written as PNG. Nothing of it is drawn by hand. With
``--port`` an installation that runs already is asked.
"""

import argparse
import asyncio
import io
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from PIL import Image
from sklearn.datasets import load_digits

from tests.controlplane.dashboard.browser import one_browser
from tests.controlplane.dashboard.driven import Driven
from tests.integration.deployment import deployed, short_directory
from tests.integration.trace_player import Asked, play

FILE = Path(__file__).parents[3] / "docs" / "page.png"
WIDTH = 1_180
LOWEST = "#variants-part"
"""What stands below the part of the page that is kept."""
CALM = "document.getElementById('banner').hidden && document.getElementById('notice').hidden"
PATIENCE_S, DRAWN_S = 240.0, 3.0
PERIOD_S, MEAN_QPS, SWING = 300.0, 60.0, 0.6
NEEDS = (
    {"latency_ms": 50, "accuracy": 0.95},
    {"latency_ms": 50, "accuracy": 0.97},
    {"latency_ms": 100, "accuracy": 0.98},
    {"latency_ms": 500, "accuracy": 0.99},
)


def queries(seconds: float, seed: int = 1) -> Iterator[Asked]:
    """One picture each, as a Poisson process whose rate rises and falls."""
    drawn, digits = random.Random(seed), load_digits().data.tolist()
    at_s = 0.0
    while at_s < seconds:
        qps = MEAN_QPS * (1 + SWING * math.sin(2 * math.pi * at_s / PERIOD_S))
        at_s += drawn.expovariate(qps)
        body = {"task": "digits", "slo": drawn.choice(NEEDS), "inputs": [drawn.choice(digits)]}
        yield Asked(at_s, body)


def take(port: int, file: Path) -> None:
    """Write the upper part of the page, as soon as nothing stands above its tasks that the machine
    itself is to blame for, such as other programs that take its cores; at the latest after
    ``PATIENCE_S``."""
    with one_browser(), Driven(file.parent, width=WIDTH, height=900) as tab:
        tab.open(f"http://127.0.0.1:{port}/")
        tab.wait_for(f"document.querySelector('{LOWEST}') !== null")
        end_s = time.monotonic() + PATIENCE_S
        time.sleep(DRAWN_S)
        while time.monotonic() < end_s and not tab.value(CALM):
            time.sleep(DRAWN_S)
        tab.picture(file)
        below = tab.value(
            f"document.querySelector('{LOWEST}').getBoundingClientRect().top + window.scrollY"
        )
    with Image.open(io.BytesIO(file.read_bytes())) as whole:
        whole.convert("RGB").crop((0, 0, WIDTH, round(below) - 4)).save(file, optimize=True)


@contextmanager
def installation(port: int) -> Iterator[int]:
    """The port of one that runs, or of one that is started for this."""
    if port:
        yield port
        return
    with short_directory() as home:
        state = Path(home) / "s"
        state.mkdir()
        arguments = ["--example", "digits", "--slices", "2xcpu-1"]
        with deployed(state, arguments=arguments, start_s=900.0) as running:
            yield running.port


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=2 * PERIOD_S)
    asked.add_argument("--port", type=int, default=0)
    asked.add_argument("--file", type=Path, default=FILE)
    chosen = asked.parse_args()
    with installation(chosen.port) as port:
        trace = list(queries(chosen.seconds + PATIENCE_S + 30.0))
        Thread(target=lambda: asyncio.run(play(port, trace)), daemon=True).start()
        time.sleep(chosen.seconds)
        take(port, chosen.file)
    print(f"{chosen.file}: {chosen.file.stat().st_size / 1_024:.0f} KiB")


if __name__ == "__main__":
    main()
