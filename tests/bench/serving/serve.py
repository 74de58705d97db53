"""A whole deployment under load: start, latency, throughput, goodput and memory.

Each function takes a running deployment and returns its figures; clients are processes of their
own, on the same machine.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from prometheus_client.parser import text_string_to_metric_families

from controlplane.settings import load_settings
from tests.bench.figures import Figure, middle
from tests.bench.serving.load import Job, run
from tests.bench.serving.parts import channel, pieces, wake_ups
from tests.integration.deployment import ALL_THERE, Deployment, deployed

FIRST_START_S = 600.0
"""How long a first start is waited for: it trains seven models."""
IN_FLIGHT = 32
OPEN_CONNECTIONS = 128
WITHIN_MS = 20.0
GOOD_SHARE = 0.99
RATES = (6_000, 8_000, 10_000, 12_000, 13_000, 14_000, 15_000, 16_000, 17_000, 18_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long and how often things are measured."""

    runs: int
    seconds: float
    rates: tuple[int, ...] = RATES


THOROUGH = Effort(runs=3, seconds=4.0)
QUICK = Effort(runs=1, seconds=1.0, rates=(6_000, 10_000, 14_000))


@contextmanager
def started(state: Path, *, whole: bool = True) -> Iterator[tuple[Deployment, float]]:
    """``modelless up`` as ``make up`` calls it, and the seconds to its first answer.

    The query is sent when the command says that it is ready and, where the ``whole`` example is
    waited for, all of its models are there.
    """
    began_s = time.monotonic()
    with deployed(
        state, arguments=["--example", "digits"], start_s=FIRST_START_S, measured=whole
    ) as deployment:
        answer = deployment.query([[0.0] * 64])
        took_s = time.monotonic() - began_s
        assert answer.status == 200, answer
        yield deployment, took_s


def first_start(home: Path) -> list[Figure]:
    """On an empty state directory: training, building and measuring the family included."""
    began_s = time.monotonic()
    with started(home / "first", whole=False) as (running, took_s):
        running.until(lambda: ALL_THERE in running.log, "the example is made", FIRST_START_S)
        whole_s = time.monotonic() - began_s
    return [
        Figure(
            name="first start to first answer",
            value=took_s,
            unit="s",
            at_most=120,
            note="training of the first models included, installation not",
        ),
        Figure(
            name="first start to the whole example",
            value=whole_s,
            unit="s",
            at_most=300,
            note="while the first models answer",
        ),
    ]


# -- one query at a time --------------------------------------------------------------------------


def latency(running: Deployment, effort: Effort) -> list[Figure]:
    """What a query takes with no other query there, and where that goes."""
    job = Job(port=running.port, connections=1, seconds=effort.seconds)
    outcomes = [run(job) for _ in range(effort.runs)]
    assert all(outcome.statuses.keys() == {"200"} for outcome in outcomes), outcomes
    figures = []
    for part in ("total", "run", "queue", "added"):
        for p in ("p50", "p90", "p99"):
            runs = [outcome.ms[part][p] for outcome in outcomes]
            bound = {"at_most": 0.8} if (part, p) == ("added", "p50") else {}
            figures.append(middle(f"{_PARTS[part]}, {p}", runs, "ms", **bound))
    return figures


_PARTS = {
    "total": "whole query",
    "run": "in the runtime",
    "queue": "waiting at the worker",
    "added": "added: whole minus runtime",
}


def shares(running: Deployment, effort: Effort) -> list[Figure]:
    """The mean of one query at a time, divided by what client, gateway and worker saw of it.

    The gateway's clock runs from the first byte that it received to the reply that it wrote.
    """
    before = _counted(running)
    outcome = run(Job(port=running.port, connections=1, seconds=effort.seconds))
    grown = {name: value - before.get(name, 0) for name, value in _counted(running).items()}
    answers = grown["modelless_query_seconds_count"]
    whole, gateway, queue, runtime = (
        outcome.ms["total"]["mean"] * 1000,
        *(grown[f"modelless_{name}"] / answers * 1e6 for name in _SECONDS),
    )
    return [
        Figure(name="client, sockets and HTTP, both ways", value=whole - gateway, unit="µs"),
        Figure(
            name="gateway, channel both ways, admission",
            value=gateway - queue - runtime,
            unit="µs",
        ),
        Figure(name="waiting at the worker", value=queue, unit="µs"),
        Figure(name="in the runtime", value=runtime, unit="µs"),
        Figure(name="whole query", value=whole, unit="µs"),
    ]


_SECONDS = ("query_seconds_sum", "queue_seconds_total", "run_seconds_total")


def _counted(running: Deployment) -> dict[str, float]:
    """The gateway's metrics by name, over all labels."""
    answer = running.request("GET", "/metrics")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def breakdown(running: Deployment, effort: Effort) -> list[Figure]:
    """Parts of the added latency, each measured by itself."""
    unknown = Job(port=running.port, connections=1, seconds=effort.seconds, task="unknown")
    rejected = run(unknown)
    assert rejected.statuses.keys() == {"404"}, rejected
    over_channel = channel(effort.seconds)
    return [
        Figure(
            name="a byte to another core and back, p50",
            value=wake_ups(effort.seconds),
            unit="µs",
            note="two wake-ups; a query has four",
        ),
        Figure(
            name="unknown task, client to answer, p50",
            value=rejected.ms["total"]["p50"] * 1000,
            unit="µs",
            note="HTTP and an error; no worker",
        ),
        Figure(
            name="tensor channel, there and back, p50",
            value=over_channel.p50_ms * 1000,
            unit="µs",
            note="with admission and a tiny model",
        ),
        *pieces(load_settings(state_dir=running.state_dir)),
    ]


# -- many queries ---------------------------------------------------------------------------------


def saturation(running: Deployment, effort: Effort) -> list[Figure]:
    """As many queries per second as ``IN_FLIGHT`` clients get, on the smallest variant."""
    job = Job(port=running.port, connections=IN_FLIGHT, seconds=effort.seconds)
    outcomes, costs = [], []
    for _ in range(effort.runs):
        with _Spent(running) as spent:
            outcomes.append(run(job))
        costs.append(spent.us_per_query(outcomes[-1].answered))
    client_us = [o.cpu_cores * 1e6 / o.qps for o in outcomes]
    refused = sum(o.asked - o.statuses.get("200", 0) for o in outcomes)
    note = f"and {refused} not answered with 200" if refused else ""
    return [
        middle("answered", [o.qps for o in outcomes], "queries/s", at_least=6_000, note=note),
        middle("p50", [o.ms["total"]["p50"] for o in outcomes], "ms"),
        middle("p99", [o.ms["total"]["p99"] for o in outcomes], "ms"),
        middle("client, processor time per query", client_us, "µs"),
        middle("gateway, processor time per query", [gateway for gateway, _ in costs], "µs"),
        middle("worker, processor time per query", [worker for _, worker in costs], "µs"),
        middle("client, share of one core", [o.cpu_cores * 100 for o in outcomes], "%"),
    ]


def goodput(running: Deployment, effort: Effort) -> list[Figure]:
    """The highest rate at which 99 % of queries are answered within 20 ms of being due.

    Rates are tried upwards until two in a row are too high.
    """
    best = Figure(name="goodput", value=0, unit="queries/s", note="no rate was low enough")
    tried: list[Figure] = []
    missed = 0
    for rate in effort.rates:
        outcomes = [
            run(
                Job(
                    port=running.port,
                    connections=OPEN_CONNECTIONS,
                    seconds=effort.seconds,
                    rate=rate,
                    within_ms=WITHIN_MS,
                    seed=seed,
                )
            )
            for seed in range(effort.runs)
        ]
        share = median(o.good_share for o in outcomes)
        p50_ms, p99_ms = (median(o.ms["total"][p] for o in outcomes) for p in ("p50", "p99"))
        note = f"p50 {p50_ms:.2f} ms, p99 {p99_ms:.1f} ms"
        runs = [100 * o.good_share for o in outcomes]
        tried.append(middle(f"  at {rate:,}/s, good", runs, "%", note=note))
        if share >= GOOD_SHARE:
            missed = 0
            best = middle("goodput", [o.good / o.seconds for o in outcomes], "queries/s", note=note)
        else:
            missed += 1
            if missed == 2:
                break
    return [best, *tried]


class _Spent:
    """Processor time that gateway and worker use while it is entered."""

    def __init__(self, running: Deployment) -> None:
        self._processes = [gateway_of(running), worker_of(running)]
        self._used_s = [0.0, 0.0]

    def __enter__(self) -> "_Spent":
        self._used_s = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self._used_s = [now - was for now, was in zip(self._now(), self._used_s, strict=True)]

    def _now(self) -> list[float]:
        times = [process.cpu_times() for process in self._processes]
        return [found.user + found.system for found in times]

    def us_per_query(self, queries: int) -> tuple[float, float]:
        gateway_s, worker_s = self._used_s
        return gateway_s / queries * 1e6, worker_s / queries * 1e6


# -- memory ---------------------------------------------------------------------------------------


def memory_idle(running: Deployment) -> list[Figure]:
    """A worker that holds nothing, on a deployment without tasks."""
    worker = worker_of(running)
    torch = "libtorch" in Path(f"/proc/{worker.pid}/maps").read_text()
    note = "with torch" if torch else "without torch"
    return _memory("worker, nothing loaded", [worker], at_most=250, note=note)


def memory(running: Deployment) -> list[Figure]:
    """All processes with the family loaded; PSS counts each shared page once in all."""
    gateway, worker = gateway_of(running), worker_of(running)
    controller = _replica(running, "controller")
    rest = [
        process
        for process in (psutil.Process(running.process.pid), *running.processes())
        if process not in (gateway, worker, controller)
    ]
    ray = [process for process in rest if _is_rays(process)]
    others = [process for process in rest if process not in ray]
    loaded = len(running.ready(running.workers()[0]))
    return [
        *_memory("gateway", [gateway], at_most=250),
        *_memory(f"worker, {loaded} variants loaded", [worker]),
        *_memory("control loop", [controller]),
        *_memory(f"Ray's own {len(ray)} processes", ray),
        *_memory("modelless up and Valkey", others),
        *_memory("everything", [gateway, worker, controller, *rest])[:1],
    ]


def _memory(
    name: str, processes: list[psutil.Process], at_most: float | None = None, note: str = ""
) -> list[Figure]:
    rollups = [_rollup(process.pid) for process in processes]
    pss, rss = (sum(found[key] for found in rollups) for key in ("Pss", "Rss"))
    return [
        Figure(name=f"{name}, PSS", value=pss, unit="MiB", at_most=at_most, note=note),
        Figure(name=f"{name}, RSS", value=rss, unit="MiB"),
    ]


def _rollup(pid: int) -> dict[str, float]:
    """MiB by name, from the kernel's sums over all mappings."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return {field[0].rstrip(":"): int(field[1]) / 1024 for field in fields}


def gateway_of(running: Deployment) -> psutil.Process:
    return _replica(running, "gateway")


def worker_of(running: Deployment) -> psutil.Process:
    return _replica(running, "worker")


def _replica(running: Deployment, deployment: str) -> psutil.Process:
    """The only replica of a Serve deployment, by the title that Ray gives its process."""
    (found,) = [p for p in running.processes() if _title(p).endswith(f":{deployment}")]
    return found


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline()).strip()


def _is_rays(process: psutil.Process) -> bool:
    title = _title(process)
    return title.startswith("ray::") or "/ray/" in title
