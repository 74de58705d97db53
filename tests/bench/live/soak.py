"""Soak: what grows while an installation is used for long: memory, files, threads, the disk.

``python -m tests.bench.live.soak --minutes 45`` starts the digits family and uses it as many would,
all at once: queries over ``/v1/query``, the Open Inference Protocol and gRPC, some that are wrong,
some that cannot be met, connections that break off in the middle, a page that is open, and every
half minute a model that is registered under a task of its own, asked, pinned and removed again.

Every quarter of a minute it looks at each process. Printed for each: private memory (USS) at the
end of the first third and at the end, what it gains in an hour by a line through the last two
thirds, open files and threads; then what the state directory, the live state and Ray's logs hold.
Something that leaks gains with what it is asked, so ``--rate`` makes leaks show sooner.
"""

import argparse
import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
import orjson
import psutil
import redis

from tests.bench import machine
from tests.bench.serving.idle import name_of
from tests.bench.serving.state import copy_filled
from tests.controlplane.gateway.grpc.calls import Stubs, connected, request
from tests.integration.deployment import Deployment, deployed, short_directory

EVERY_S = 15.0
"""Between two looks."""
PAGE_S = 5.0
"""Between two refreshes of a page."""
ROW = [float(at % 17) for at in range(64)]
QUERY = {"task": "digits", "slo": {"latency_ms": 1_000}, "inputs": [ROW]}
WRONG: tuple[bytes, ...] = (
    b'{"task": "digits", "inputs": [[1, 2',
    b'{"task": "no-such-task", "inputs": [[1]]}',
    orjson.dumps(QUERY | {"slo": {"latency_ms": 0.01}}),
    orjson.dumps(QUERY | {"slo": {"accuracy": 1.0}}),
    orjson.dumps(QUERY | {"inputs": [["a"]]}),
    orjson.dumps(QUERY | {"variant": "no-such-variant"}),
)
PAGES = (
    "/", "/v1/tasks", "/v1/slo", "/v1/plan", "/v1/workers", "/v1/tasks/digits/variants",
    "/v1/events", "/v1/history", "/v1/ticks", "/metrics", "/v2/models/digits/stats",
)  # fmt: skip


@dataclass(slots=True)
class Series:
    """Of one process, or of what is kept somewhere."""

    at_s: list[float] = field(default_factory=list)
    mib: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def add(self, at_s: float, mib: float, files: int = 0, threads: int = 0) -> None:
        self.at_s.append(at_s)
        self.mib.append(mib)
        self.files.append(files)
        self.threads.append(threads)

    @property
    def mib_per_hour(self) -> float:
        """By a line through the last two thirds."""
        first = len(self.mib) // 3
        if len(self.mib) - first < 3:
            return 0.0
        return 3_600 * float(np.polyfit(self.at_s[first:], self.mib[first:], 1)[0])


class Usage:
    """Everything that asks, in one event loop in a thread of its own."""

    def __init__(
        self, running: Deployment, rate: float, churn_s: float, model: bytes, rows: bytes
    ) -> None:
        """``churn_s`` are between two models that come and go."""
        self._running, self._rate, self._churn_s = running, rate, churn_s
        self._model, self._rows = model, rows
        self._url = f"http://127.0.0.1:{running.port}"
        self._ends = threading.Event()
        self.answers: Counter[str] = Counter()
        self.models = 0
        """That came and went."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()), daemon=True)

    def __enter__(self) -> "Usage":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(60)

    async def _all(self) -> None:
        async with (
            httpx.AsyncClient(base_url=self._url, timeout=30) as http,
            connected(self._running.grpc_port) as stubs,
        ):
            works: dict[Callable[[], Awaitable[None]], float] = {
                lambda: self._query(http): 0.5 * self._rate,
                lambda: self._binary(http): 0.2 * self._rate,
                lambda: self._over_grpc(stubs): 0.1 * self._rate,
                lambda: self._wrong(http): 0.1 * self._rate,
                self._alone: 0.05 * self._rate,
                self._broken_off: 0.05 * self._rate,
                lambda: self._page(http): 1 / PAGE_S,
                lambda: self._churn(http): 1 / self._churn_s,
            }
            async with asyncio.TaskGroup() as group:
                for work, rate in works.items():
                    group.create_task(self._repeated(work, rate))

    async def _over_grpc(self, stubs: Stubs) -> None:
        row = np.array([ROW], "<f4")
        await stubs.infer(request(row, name="pixels", model_name="digits"))
        self.answers["grpc"] += 1

    async def _repeated(self, work: Callable[[], Awaitable[None]], rate: float) -> None:
        while not self._ends.is_set():
            began_s = time.monotonic()
            try:
                await work()
            except Exception as error:
                self.answers[type(error).__name__] += 1
            pause_s = random.expovariate(rate) - (time.monotonic() - began_s)
            await asyncio.sleep(max(0.0, pause_s))

    async def _query(self, http: httpx.AsyncClient) -> None:
        answer = await http.post("/v1/query", content=orjson.dumps(QUERY))
        self.answers[f"query {answer.status_code}"] += 1

    async def _binary(self, http: httpx.AsyncClient) -> None:
        raw = np.array([ROW], "<f4").tobytes()
        parameters = {"binary_data_size": len(raw)}
        tensor = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "parameters": parameters}
        head = orjson.dumps({"inputs": [tensor]})
        answer = await http.post(
            "/v2/models/digits/infer",
            content=head + raw,
            headers={"Inference-Header-Content-Length": str(len(head))},
        )
        self.answers[f"binary {answer.status_code}"] += 1

    async def _wrong(self, http: httpx.AsyncClient) -> None:
        answer = await http.post("/v1/query", content=random.choice(WRONG))
        self.answers[f"wrong {answer.status_code}"] += 1

    async def _alone(self) -> None:
        """Over a connection of its own."""
        async with httpx.AsyncClient(base_url=self._url, timeout=30) as http:
            await self._query(http)

    async def _broken_off(self) -> None:
        """Half a request, or a whole one whose client does not wait."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._running.port)
        body = orjson.dumps(QUERY)
        head = f"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[: random.choice((0, 20, len(body)))])
        await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self.answers["broken off"] += 1

    async def _page(self, http: httpx.AsyncClient) -> None:
        for path in PAGES:
            answer = await http.get(path)
            self.answers[f"page {answer.status_code}"] += 1
        answer = await http.post("/v1/explain", content=orjson.dumps({"task": "digits", "rows": 1}))
        self.answers[f"page {answer.status_code}"] += 1

    async def _churn(self, http: httpx.AsyncClient) -> None:
        """A model of a task of its own comes, answers, is pinned and goes."""
        task = f"soak-{self.models}"
        self.models += 1
        form = {"task": task, "name": task, "variants": "onnx-fp32"}
        files = {"model": self._model, "evaluation": self._rows}
        given = await http.post("/v1/models", data=form, files=files)
        operation = given.json()
        where = f"/v1/operations/{operation.get('id', '')}"
        while operation.get("state") in ("queued", "running"):
            await asyncio.sleep(0.5)
            operation = (await http.get(where)).json()
        why = (operation.get("error") or {}).get("error", "")
        self.answers[f"registered: {operation.get('state', given.text)} {why}"] += 1
        variants = (await http.get(f"/v1/tasks/{task}/variants")).json().get("variants", [])
        for _ in range(5):
            answer = await http.post(
                "/v1/query", content=orjson.dumps(QUERY | {"task": task, "slo": {}})
            )
            self.answers[f"its query {answer.status_code}"] += 1
            await asyncio.sleep(0.5)
        if variants:
            pin = {"rule": "pin", "task": task, "variant": variants[0]["name"]}
            rule = await http.post("/v1/rules", content=orjson.dumps(pin))
            self.answers[f"pinned {rule.status_code}"] += 1
            await asyncio.sleep(2.0)
            await http.delete(f"/v1/rules/{rule.json().get('id')}")
        gone = await http.delete(f"/v1/tasks/{task}")
        self.answers[f"removed {gone.status_code}"] += 1


def watch(running: Deployment, minutes: float) -> tuple[Mapping[str, Series], Mapping[str, Series]]:
    """Processes by name, and what is kept by where."""
    processes: dict[str, Series] = defaultdict(Series)
    kept: dict[str, Series] = defaultdict(Series)
    names: dict[int, str] = {}
    began_s = time.monotonic()
    while (at_s := time.monotonic() - began_s) < 60 * minutes:
        taken: dict[str, list[float]] = defaultdict(lambda: [0.0, 0, 0])
        for process in (psutil.Process(running.process.pid), *running.processes()):
            with suppress(psutil.Error, FileNotFoundError, IndexError):
                # Ray calls a process after what it does just now.
                row = taken[names.setdefault(process.pid, name_of(process))]
                row[0] += process.memory_full_info().uss / 2**20
                row[1] += process.num_fds()
                row[2] += process.num_threads()
        for name, (mib, files, threads) in taken.items():
            processes[name].add(at_s, mib, int(files), int(threads))
        state = running.state_dir
        for name, path in {
            "catalog": state / "catalog.db", "its log": state / "catalog.db-wal",
            "artifacts": state / "artifacts", "run": state / "run",
        }.items():  # fmt: skip
            kept[name].add(at_s, *_size(path))
        live_state = redis.Redis(unix_socket_path=str(state / "run" / "valkey.sock"))
        with suppress(redis.RedisError, OSError), live_state as live:
            kept["live state"].add(at_s, live.info("memory")["used_memory"] / 2**20, live.dbsize())
        time.sleep(EVERY_S)
    return processes, kept


def _size(path: Path) -> tuple[float, int]:
    """MiB and files of a file, or of all under a folder."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    total = 0
    for one in files:
        with suppress(OSError):
            total += one.stat().st_size
    return total / 2**20, len(files)


def show(title: str, found: Mapping[str, Series], counts: str) -> None:
    print(f"\n{title}\n{'':40} {'a third':>9} {'end':>9} {'an hour':>9}   {counts}")
    for name, one in sorted(found.items(), key=lambda item: -item[1].mib[-1]):
        third = len(one.mib) // 3
        print(
            f"{name:40} {one.mib[third]:9.1f} {one.mib[-1]:9.1f} {one.mib_per_hour:+9.1f}"
            f"   {one.files[third]} -> {one.files[-1]}"
            + (f", {one.threads[third]} -> {one.threads[-1]}" if one.threads[-1] else "")
        )


def example(folder: Path) -> tuple[bytes, bytes]:
    """A classifier of 64 numbers, and rows to judge it by."""
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    weights = rng.normal(size=(64, 10)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["pixels", "w"], ["scores"])],
        "soak",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["rows", 64])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", 10])],
        [helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.tobytes(), raw=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    rows = rng.uniform(0, 16, (256, 64)).astype(np.float32)
    np.savez(folder / "rows.npz", pixels=rows, labels=(rows @ weights).argmax(1))
    return model.SerializeToString(), (folder / "rows.npz").read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.soak")
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second")
    parser.add_argument("--churn-s", type=float, default=30.0, help="between two models")
    given = parser.parse_args()
    print(machine.describe(), flush=True)
    with short_directory() as home, TemporaryDirectory() as made:
        model, rows = example(Path(made))
        with (
            deployed(copy_filled(home)) as running,
            Usage(running, given.rate, given.churn_s, model, rows) as usage,
        ):
            processes, kept = watch(running, given.minutes)
    show("MiB of each process of its own", processes, "open files, threads")
    show("MiB of what is kept", kept, "files or keys")
    print(f"\n{usage.models} models came and went")
    print(", ".join(f"{what}: {times}" for what, times in sorted(usage.answers.items())))


if __name__ == "__main__":
    main()
