"""Us beside the model server that comes nearest, in one run: ``make bench-peers``.

``python -m tests.bench.peers [--models tiny,small,resnet] [--rounds 1] [--seconds 4]`` takes some
seven minutes for each model and round. Both servers have the same ONNX file as it is, and the
client is the same: JSON bodies of one row over connections that stay open. They run one after the
other, in turns, on the same cores as the client.

Printed for each: p50 and p99 of one query in flight; queries per second of 32 clients that wait for
their answers; the processor time that the server's processes take for a query at a rate that both
can serve; and the goodput, which is the highest rate of Poisson arrivals of which 99 % are answered
within the model's SLO, in two of three runs. Ours is told that SLO there, and 5 s elsewhere. Then
MLPerf LoadGen asks both (SingleStream, Server, Offline, and whether every row is answered right),
and NVIDIA's perf_analyzer asks ours over HTTP and gRPC.

On a machine with more cores, ``--server-cores N`` gives N cores to the servers, all their processes
included, and another one to the client. Mosec's processes, threads and batch are then the best of
some that fill these cores, by what 32 clients get. ``--own-client`` leaves LoadGen and
perf_analyzer out. ``--warm-up S`` has 32 clients ask each server for S seconds before anything is
measured (40 by default): ours starts gateways by what is asked, twice as many every 15 s where all
are full, and a rate that did not hold while one of them was being started is not tried again.
``--slices`` divides our cores otherwise than by default, as ``modelless up --slices`` does.
"""

import argparse
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.bench import machine
from tests.bench.peers import servers
from tests.bench.peers.goodput import goodput
from tests.bench.peers.models import MODELS, Model, export
from tests.bench.peers.servers import PATIENT_MS, Server
from tests.bench.serving.load import Job, run
from tests.clients import libraries, program
from tests.integration.deployment import short_directory

CLIENTS = 32
CONNECTIONS = 128
WARM_UP_S = 40.0
MOST_QPS = 500.0
"""Of LoadGen's Server scenario: its client is written in Python."""
Found = dict[str, float]


def job_of(server: Server, model: Model, seconds: float, core: int | None) -> Job:
    """One patient client of a server."""
    return Job(
        port=server.port, connections=1, seconds=seconds, task=model.name, width=model.width,
        decimals=4, within_ms=model.slo_ms, slo_ms=PATIENT_MS, path=server.path, flat=server.flat,
        shape=model.shape, core=core,
    )  # fmt: skip


def measured(
    server: Server, model: Model, seconds: float, core: int | None, warm_up_s: float
) -> Found:
    """The numbers of one server with one model."""
    job = job_of(server, model, seconds, core)
    if warm_up_s:
        run(replace(job, connections=CLIENTS, seconds=warm_up_s))
    one = run(job)
    many = run(replace(job, connections=CLIENTS))
    before_s = server.cpu_s()
    steady = run(replace(job, connections=CONNECTIONS, rate=model.rate))
    cost_ms = 1e3 * (server.cpu_s() - before_s) / steady.answered
    open_loop = replace(job, connections=CONNECTIONS, slo_ms=model.slo_ms)
    held = goodput(
        lambda rate, seed: run(replace(open_loop, rate=rate, seed=seed)).good_share,
        0.85 * many.qps,
    )
    return {
        "p50_ms": one.ms["total"]["p50"],
        "p99_ms": one.ms["total"]["p99"],
        "many_qps": many.qps,
        "cost_ms": cost_ms,
        "goodput_qps": held,
    }


def asked_by_loadgen(server: Server, model: Model, rows: Path, found: Found, seconds: float) -> str:
    """What MLPerf LoadGen finds; as Server it asks at half of what 32 clients got, at most."""
    known = np.load(rows)
    bodies = []
    for row in known["x"]:
        asked: dict[str, Any] = {"task": model.name, "inputs": [row.tolist()]}
        asked["slo"] = {"latency_ms": PATIENT_MS}
        bodies.append(json.dumps({"x": row.ravel().tolist()} if server.flat else asked))
    qps = min(max(1.0, 0.5 * found["many_qps"]), MOST_QPS)
    job = {
        "port": server.port, "path": server.path, "bodies": bodies, "ours": not server.flat,
        # Of fewer queries LoadGen says nothing about the 99th percentile.
        "qps": qps, "slo_ms": model.slo_ms, "seconds": max(seconds, 1_000 / qps),
    }  # fmt: skip

    def ask(scenario: str, connections: int = CLIENTS, mode: str = "performance") -> Any:
        done = subprocess.run(
            [
                program("loadgen", "python"),
                Path(__file__).with_name("loadgen_session.py"),
            ],
            input=json.dumps(
                {**job, "scenario": scenario, "connections": connections, "mode": mode}
            ),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=600,
        )
        return json.loads(done.stdout.splitlines()[-1])

    single, served = ask("SingleStream", 1), ask("Server")
    offline, best = ask("Offline"), ask("Offline", mode="accuracy")["best"]
    right = float(np.mean(np.array(best) == known["labels"]))
    p50_ms = float(single["50.00 percentile latency (ns)"]) / 1e6
    p99_ms = float(served["99.00 percentile latency (ns)"]) / 1e6
    failed = sum(one["failed"] for one in (single, served, offline))
    return (
        f"SingleStream p50 {p50_ms:.2f} ms; Server at {job['qps']:.0f}/s p99 {p99_ms:.1f} ms, "
        f"{served['Result is']}; Offline {float(offline['Samples per second']):,.0f}/s; "
        f"{right:.1%} of the answers right; {failed} failed"
    )


def asked_by_perf_analyzer(server: Server, model: Model) -> Iterator[str]:
    """What ``perf_analyzer`` finds of ours with eight queries in flight."""
    shapes = f"x:{','.join(map(str, model.shape))}"
    for name, how in {
        "HTTP": ["-i", "http", "-u", f"127.0.0.1:{server.port}"],
        "gRPC": ["-i", "grpc", "-u", f"127.0.0.1:{server.grpc_port}"],
        "gRPC stream": ["-i", "grpc", "--streaming", "-u", f"127.0.0.1:{server.grpc_port}"],
    }.items():
        command = [str(program("triton", "perf_analyzer")), "-m", model.name, "--shape", shapes]
        # Its own rows are random bytes, and floats of such bytes are not all finite.
        command += [
            "--input-data",
            "zero",
            "--concurrency-range",
            "8",
            "-p",
            "2000",
            "-r",
            "3",
            "-s",
            "50",
            *how,
        ]
        done = subprocess.run(
            command,
            env={**os.environ, "LD_LIBRARY_PATH": libraries("triton")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        said = re.findall(r"throughput: ([\d.]+) infer/sec, latency (\d+) usec", done.stdout)
        if said:
            yield f"{name} {float(said[-1][0]):,.0f}/s, {float(said[-1][1]) / 1e3:.2f} ms"
        else:
            yield f"{name}: {done.stdout.strip().splitlines()[-1]}"


@contextmanager
def started(
    name: str, state: Path, model: Model, files: Mapping[str, tuple[Path, Path]], slices: str
) -> Iterator[Server]:
    if name == "modelless":
        with servers.ours(state, slices) as server:
            yield server
    else:
        with servers.mosec(model, files[model.name][0]) as server:
            yield server


def best_of_mosec(model: Model, path: Path, cores: int, seconds: float, core: int) -> Model:
    """The model with the processes, threads and batch by which mosec serves 32 clients best."""
    tried = []
    for workers in sorted({1, max(1, cores // 2), cores}):
        for batch in sorted({1, model.batch, 2 * model.batch}):
            one = replace(model, workers=workers, threads=max(1, cores // workers), batch=batch)
            with servers.mosec(one, path) as server:
                job = replace(job_of(server, one, seconds, core), connections=CLIENTS)
                tried.append((run(job).qps, one))
    qps, best = max(tried, key=lambda found: found[0])
    print(
        f"mosec's best of {len(tried)} for {model.name}: {best.workers} processes of "
        f"{best.threads} threads, batches of {best.batch}: {qps:,.0f}/s",
        flush=True,
    )
    return best


def show(name: str, found: list[Found], against: list[Found]) -> None:
    """Medians over the rounds, and the median of the ratios in each."""
    middle = {key: median(one[key] for one in found) for key in found[0]}
    ratio = {
        key: median(one[key] / other[key] if other[key] else float("inf") for one, other in pairs)
        for key in middle
        if (pairs := list(zip(found, against, strict=True)))
    }
    print(
        f"  {name:10} one in flight p50 {middle['p50_ms']:7.2f} ms, p99 {middle['p99_ms']:7.2f} ms"
        f"   {CLIENTS} in flight {middle['many_qps']:7,.0f}/s ({ratio['many_qps']:.2f})"
        f"   server {middle['cost_ms']:7.3f} ms each ({ratio['cost_ms']:.2f})"
        f"   goodput {middle['goodput_qps']:7,.0f}/s ({ratio['goodput_qps']:.2f})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--models", default="tiny,small,resnet")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--server-cores", type=int, default=0, metavar="N")
    parser.add_argument("--own-client", action="store_true")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="S")
    parser.add_argument("--slices", default="")
    given = parser.parse_args()
    chosen = [model for model in MODELS if model.name in given.models.split(",")]
    core = None
    if given.server_cores:
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) <= given.server_cores:
            parser.error(f"{len(allowed)} cores leave none for the client")
        core = allowed[given.server_cores]
        os.sched_setaffinity(0, allowed[: given.server_cores])
    print(machine.describe())
    with machine.Others() as others, TemporaryDirectory() as made, short_directory() as home:
        files = {model.name: export(model, Path(made)) for model in chosen}
        for model in chosen:
            servers.register(home / "s", model, files[model.name], given.slices)
        for model in chosen:
            best = model
            if core is not None:
                path = files[model.name][0]
                best = best_of_mosec(model, path, given.server_cores, given.seconds / 2, core)
            compare(best, files, home / "s", given, core)
    print(f"others used {others.cores:.1f} cores meanwhile")


def compare(
    model: Model,
    files: Mapping[str, tuple[Path, Path]],
    state: Path,
    given: argparse.Namespace,
    core: int | None,
) -> None:
    """Both servers in turns with one model."""
    found: dict[str, list[Found]] = {"modelless": [], "mosec": []}
    said: dict[str, str] = {}
    for _ in range(given.rounds):
        for name, so_far in found.items():
            with started(name, state, model, files, given.slices) as server:
                so_far.append(measured(server, model, given.seconds, core, given.warm_up))
                if given.own_client or f"LoadGen on {name}" in said:
                    continue
                rows = files[model.name][1]
                asked = asked_by_loadgen(server, model, rows, so_far[0], given.seconds)
                said[f"LoadGen on {name}"] = asked
                if server.grpc_port:
                    asked = "; ".join(asked_by_perf_analyzer(server, model))
                    said[f"perf_analyzer on {name}"] = asked
    print(f"{model.name}, {model.slo_ms:g} ms (ratios to mosec)")
    for name, each in found.items():
        show(name, each, found["mosec"])
    for by, answer in said.items():
        print(f"  {by}: {answer}", flush=True)


if __name__ == "__main__":
    main()
