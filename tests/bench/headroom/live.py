"""Is the headroom true? ``python -m tests.bench.headroom.live``.

Queries to one variant come as a Poisson process at a base rate until the control loop has said how
many times that the workers could serve. Then parts and multiples of what it said are played, and of
each is printed how many were answered within their SLO, next to the 99 of 100 that it promises. The
variant is named, so that no other one takes its place when it is full. Client and server share the
cores, of which the client takes what it takes; ``--variant`` chooses another one, ``--slo`` another
deadline. Beside it stands what a row takes by the profile, what it took of late, and what it takes
where one follows on another, which is counted with and should not depend on the base rate.
"""

import argparse
import asyncio
import time
from collections import Counter
from math import nan
from pathlib import Path
from random import Random

from tests.bench import machine
from tests.bench.serving.state import copy_filled
from tests.integration.deployment import Deployment, deployed, short_directory
from tests.integration.trace_player import Asked, play

BASE_S = 25.0
PARTS = (0.5, 0.8, 0.9, 1.0, 1.1, 1.25)


def poisson(rate: float, seconds: float, body: dict[str, object], seed: int) -> list[Asked]:
    """Queries at random moments."""
    draw, at_s, found = Random(seed), 0.0, []
    while (at_s := at_s + draw.expovariate(rate)) < seconds:
        found.append(Asked(at_s, body))
    return found


def told_headroom(running: Deployment, base: float, body: dict[str, object]) -> float:
    """How many queries a second the control loop says could be served, from a base rate."""
    asyncio.run(play(running.port, poisson(base, BASE_S, body, 0)))
    found = running.get("/v1/plan")["headroom"]
    [task] = found["tasks"]
    print(f"at {task['asked_qps']:.1f}/s as it saw them: {found['sentence']}")
    [profile] = running.get(f"/v1/profiles?task=digits&variant={body['variant']}")["profiles"]
    row = profile["points"][0]
    print(
        f"a row: {row['p50_ms']:.1f} ms by the profile, {row['live_ms'] or nan:.1f} now, ", end=""
    )
    print(f"{row['busy_ms'] or nan:.1f} after another (± {100 * (row['busy_error'] or nan):.0f} %)")
    return float(task["factor"] * task["asked_qps"])


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--variant", default="cnn-large-v1-onnx-fp32")
    asked.add_argument("--slo", type=float, default=100.0)
    asked.add_argument("--bases", type=float, nargs="+", default=[10.0, 30.0])
    asked.add_argument("--seconds", type=float, default=8.0)
    asked.add_argument("--fresh", action="store_true", help="measure all variants first")
    chosen = asked.parse_args()
    print(machine.describe())
    body: dict[str, object] = {
        "task": "digits", "variant": chosen.variant, "slo": {"latency_ms": chosen.slo},
        "inputs": [[float(at % 17) for at in range(64)]],
    }  # fmt: skip
    with short_directory() as home:
        state = copy_filled(Path(home), chosen.fresh)
        with deployed(state, start_s=900.0) as running:
            time.sleep(5.0)
            for base in chosen.bases:
                most = told_headroom(running, base, body)
                print(f"{most:.0f}/s could be served, it says")
                print("| part of that | asked/s | in time | late, refused |")
                print("|--:|--:|--:|---|")
                for part in PARTS:
                    rate = part * most
                    told = asyncio.run(play(running.port, poisson(rate, chosen.seconds, body, 1)))
                    good = sum("code" not in one.body and one.took_ms <= chosen.slo for one in told)
                    rest = Counter(str(one.body.get("code", "late")) for one in told
                                   if "code" in one.body or one.took_ms > chosen.slo)  # fmt: skip
                    words = ", ".join(f"{n} {code}" for code, n in sorted(rest.items()))
                    print(f"| {part:.2f} | {rate:.0f} | {good / len(told):.2%} | {words} |")
                    time.sleep(3.0)


if __name__ == "__main__":
    main()
