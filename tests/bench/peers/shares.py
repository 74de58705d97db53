"""What is answered in time at each of some rates, pooled over rounds:
``python -m tests.bench.peers.shares --model small --rates 250,300,350,400,450,500``.

The goodput of ``tests.bench.peers`` rests on two or three short runs for each rate, and one stall
of the machine of 30 ms costs a run of three seconds its hundredth. Here each server is started anew
in each round, in turns, and is asked every rate once with the round's own arrivals, so that a stall
is one of many and meets all alike. The goodput is the highest rate up to which 99 % of all queries
of all rounds were answered in time.

``--beside FOLDER`` has another checkout in turns with this one, and ``--slices SLICES`` this one
with its cores divided in another way; both may be given several times. ``--without-peer`` leaves
mosec out.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.bench import machine
from tests.bench.peers import servers
from tests.bench.peers.__main__ import CLIENTS, CONNECTIONS, job_of
from tests.bench.peers.goodput import SHARE
from tests.bench.peers.models import MODELS, Model, export
from tests.bench.peers.servers import Server
from tests.bench.serving.load import run
from tests.integration.deployment import short_directory

WARM_UP_S = 2.0


@dataclass(slots=True)
class Pooled:
    """What came of one server over all rounds."""

    asked: dict[float, int] = field(default_factory=dict)
    good: dict[float, int] = field(default_factory=dict)
    cores: dict[float, list[float]] = field(default_factory=dict)
    """Processor time of the server per second, in each round."""
    lone_ms: list[float] = field(default_factory=list)
    many_qps: list[float] = field(default_factory=list)

    def share(self, rate: float) -> float:
        return self.good[rate] / max(1, self.asked[rate])

    def goodput(self) -> float:
        """The highest rate up to which enough were in time at each; 0 where none was."""
        held = 0.0
        for rate in sorted(self.asked):
            if self.share(rate) < SHARE:
                break
            held = rate
        return held


@contextmanager
def sources(folder: Path) -> Iterator[None]:
    """Commands are those of another checkout meanwhile."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder)
    try:
        with chdir(folder):
            yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def one_round(
    server: Server, model: Model, rates: Sequence[float], seconds: float, seed: int, found: Pooled
) -> None:
    """Every rate once, and before them one query in flight and many."""
    patient = job_of(server, model, seconds, None)
    run(replace(patient, connections=CLIENTS, seconds=WARM_UP_S))
    found.lone_ms.append(run(patient).ms["total"]["p50"])
    found.many_qps.append(run(replace(patient, connections=CLIENTS)).qps)
    for rate in rates:
        before_s = server.cpu_s()
        came = run(
            replace(
                patient, connections=CONNECTIONS, slo_ms=model.slo_ms, rate=rate, seed=seed
            )
        )  # fmt: skip
        # Its arrivals began before they were measured, at the same rate.
        used = (server.cpu_s() - before_s) / (came.answered / rate) if came.answered else 0.0
        found.asked[rate] = found.asked.get(rate, 0) + came.asked
        found.good[rate] = found.good.get(rate, 0) + came.good
        found.cores.setdefault(rate, []).append(used)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers.shares", description=__doc__)
    parser.add_argument("--model", default="small", choices=[model.name for model in MODELS])
    parser.add_argument("--rates", default="250,300,350,400,450,500")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--slices", action="append", default=[], metavar="SLICES")
    parser.add_argument("--without-peer", action="store_true")
    given = parser.parse_args()
    model = next(each for each in MODELS if each.name == given.model)
    rates = sorted(map(float, given.rates.split(",")))
    besides = {f"beside {n}": path.resolve() for n, path in enumerate(given.beside, start=1)}
    ours = {name: (folder, "") for name, folder in {"here": Path.cwd(), **besides}.items()}
    ours |= {slices: (Path.cwd(), slices) for slices in given.slices}
    pooled = {name: Pooled() for name in ours}
    print(machine.describe(), flush=True)
    with machine.Others() as others, TemporaryDirectory() as made, short_directory() as home:
        files = export(model, Path(made))
        for at, (folder, slices) in enumerate(ours.values()):
            with sources(folder):
                servers.register(home / str(at), model, files, slices)
        for seed in range(given.rounds):
            for at, (name, (folder, slices)) in enumerate(ours.items()):
                with sources(folder), servers.ours(home / str(at), slices) as server:
                    one_round(server, model, rates, given.seconds, seed, pooled[name])
            if not given.without_peer:
                mosec = pooled.setdefault("mosec", Pooled())
                with servers.mosec(model, files[0]) as server:
                    one_round(server, model, rates, given.seconds, seed, mosec)
    show(model, rates, pooled)
    print(f"others used {others.cores:.1f} cores meanwhile")


def show(model: Model, rates: Sequence[float], pooled: dict[str, Pooled]) -> None:
    """A line for each server: shares in time, and in brackets the cores that it used."""
    print(f"{model.name}, {model.slo_ms:g} ms")
    for name, found in pooled.items():
        shares = "  ".join(
            f"{rate:,.0f}/s {found.share(rate):7.2%} ({median(found.cores[rate]):.2f})"
            for rate in rates
        )
        print(
            f"  {name:10} one in flight {median(found.lone_ms):6.2f} ms  {CLIENTS} in flight "
            f"{median(found.many_qps):7,.0f}/s  {shares}  goodput {found.goodput():,.0f}/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
