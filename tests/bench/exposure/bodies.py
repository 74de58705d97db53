"""Bodies made to hurt: how long reading one stops the event loop, and how much memory it takes.

    python -m tests.bench.exposure.bodies [--mib 16]

Each body is sent over a real connection to a gateway in a process of its own. *Stall* is the
longest time for which the gateway's event loop stood still meanwhile, as a probe on the same loop
sees it, which asks to be called every millisecond; *at work* is the most processor time that the
loop's thread took from one call to the next, which other programs do not add to; *memory* is by how
much the most resident memory of gateway and reader exceeds that before, over the size of the body.
"""

import argparse
import asyncio
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import psutil
import uvloop

from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.serving import FAST, request, serving

V1 = b'{"task": "letters", "inputs": '
V2 = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": '


def filled(begin: bytes, piece: bytes, size: int, end: bytes) -> bytes:
    """As many of a piece as fit."""
    return begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end


def numbered(begin: bytes, piece: Callable[[int], bytes], size: int, end: bytes) -> bytes:
    """Pieces that differ, as many as fit."""
    each = len(piece(10**7))
    count = (size - len(begin) - len(end)) // each
    return begin + b",".join(piece(10**7 + n) for n in range(count)) + end


def bodies(size: int) -> Iterator[tuple[str, str, bytes, int]]:
    """What it is, the path, the body, and the length of its JSON where raw bytes follow."""
    one, two = "/v1/query", "/v2/models/letters/infer"
    yield (
        "numbers, as they should be",
        one,
        filled(V1 + b"[", b"[1.25,2.5,3.5,4.125],", size, b"[1,2,3,4]]}"),
        0,
    )
    yield "numbers of v2", two, filled(V2 + b"[1", b",1.2345678", size, b"]}]}"), 0
    yield "nested to the end", one, filled(V1, b"[", size, b""), 0
    yield "nested and closed", one, V1 + b"[" * (size // 2) + b"]" * (size // 2) + b"}", 0
    yield "objects in objects", one, filled(V1, b'{"a":', size, b""), 0
    yield (
        "nested 1,000 deep, often",
        one,
        filled(V1 + b"[", b"[" * 1_000 + b"]" * 1_000 + b",", size, b"1]}"),
        0,
    )
    yield "one number of digits only", one, filled(V1 + b"[[", b"7", size, b",1,1,1]]}"), 0
    yield "a fraction of digits only", one, filled(V1 + b"[[0.", b"7", size, b",1,1,1]]}"), 0
    yield "an exponent of digits only", one, filled(V1 + b"[[1e", b"7", size, b",1,1,1]]}"), 0
    yield "integers of 400 digits", one, filled(V1 + b"[[1", b"," + b"7" * 400, size, b"]]}"), 0
    yield "fractions of 400 digits", one, filled(V1 + b"[[1", b",0." + b"7" * 400, size, b"]]}"), 0
    yield "ones", one, filled(V1 + b"[[1", b",1", size, b"]]}"), 0
    yield "ones and a text", one, filled(V1 + b"[[1", b",1", size, b',"a"]]}'), 0
    yield "empty lists", one, filled(V1 + b"[[]", b",[]", size, b"]}"), 0
    yield "empty objects", one, filled(V1 + b"[{}", b",{}", size, b"]}"), 0
    yield "rows of different lengths", one, filled(V1 + b"[[1]", b",[1],[1,1]", size, b"]}"), 0
    yield "empty texts", one, filled(V1 + b'[""', b',""', size, b"]}"), 0
    yield "many keys", one, numbered(b"{", lambda n: b'"k%d":1' % n, size, b"}"), 0
    yield "one key, many times", one, filled(b'{"task":1', b',"task":1', size, b"}"), 0
    yield (
        "many names of inputs",
        one,
        numbered(V1 + b"{", lambda n: b'"k%d":[]' % n, size, b"}}"),
        0,
    )
    yield "a task's name", one, filled(b'{"task": "', b"a", size, b'"}'), 0
    yield "unicode escapes", one, filled(b'{"task": "', b"\\u00e9", size, b'"}'), 0
    yield "escaped pairs", one, filled(b'{"task": "', b"\\ud83d\\ude00", size, b'"}'), 0
    yield "escapes in small texts", one, filled(V1 + b'["\\u0041"', b',"\\u0041"', size, b"]}"), 0
    yield "white space", one, filled(V1, b" ", size, b"[[1,2,3,4]]}"), 0
    yield "no UTF-8", one, filled(b'{"task": "', b"\xc3(", size, b'"}'), 0
    yield "many inputs of v2", two, filled(b'{"inputs": [{}', b",{}", size, b"]}"), 0
    yield (
        "many outputs of v2",
        two,
        filled(V2 + b'[1,2,3,4]}], "outputs": [{}', b",{}", size, b"]}"),
        0,
    )
    yield (
        "many parameters of v2",
        two,
        numbered(V2 + b'[1,2,3,4]}], "parameters": {', lambda n: b'"k%d":1' % n, size, b"}}"),
        0,
    )
    yield "an id of v2", two, filled(V2 + b'[1,2,3,4]}], "id": "', b"a", size, b'"}'), 0
    head = V2.partition(b"[1, 4]")[0] + b'[%s], "parameters": {"binary_data_size": %s}}]}'
    for what, shape, claimed in (
        ("a shape that lies", b"4096, 4", b"16"),
        ("a size that lies", b"1, 4", b"99999999999999"),
        ("a shape of 10^18", b"1000000000000000000, 4", b"16"),
    ):
        json = head % (shape, claimed)
        yield f"{what}, raw bytes", two, json.ljust(size, b"\0"), len(json)
    json = head % (b"1, 4", b"16")
    yield "a header that lies", two, json.ljust(size, b"\0"), size
    yield "raw bytes, too many", two, json.ljust(size, b"\0"), len(json)


# -- the gateway ----------------------------------------------------------------------------------


async def probe(stalls: list[float]) -> None:
    """Note by how much the loop calls back too late."""
    loop = asyncio.get_running_loop()
    while True:
        began_s, used_s = time.monotonic(), time.thread_time()
        await asyncio.sleep(0.001)
        stalls[0] = max(stalls[0], time.monotonic() - began_s - 0.001)
        stalls[1] = max(stalls[1], time.thread_time() - used_s)
        assert loop.is_running()


async def _serve(folder: Path) -> None:
    valkey = EmbeddedValkey(folder)
    valkey.start()
    try:
        async with serving(folder, valkey.url) as served:
            await served.process("w1", FAST)
            stalls = [0.0, 0.0]
            task = asyncio.create_task(probe(stalls))
            print(served.port, os.getpid(), flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                longest, _ = tuple(stalls), gc.collect()
                await asyncio.sleep(0.01)
                stalls[:] = [0.0, 0.0]
                print(*longest, flush=True)
            task.cancel()
    finally:
        valkey.stop()


class Gateway:
    """The process, and what is asked of it."""

    def __init__(self, child: "Popen[str]") -> None:
        self._child = child
        assert child.stdout is not None
        assert child.stdin is not None
        self._out, self._in = child.stdout, child.stdin
        port, pid = self._out.readline().split()
        self.port, self.pid = int(port), int(pid)

    def stall_ms(self) -> list[float]:
        """The longest since this was last called: of the clock, and of processor time."""
        print(file=self._in, flush=True)
        return [float(word) * 1_000 for word in self._out.readline().split()]

    def processes(self) -> list[int]:
        """The gateway and those that read for it; not the worker, nor Valkey."""
        children = psutil.Process(self.pid).children(recursive=True)
        readers = [one.pid for one in children if "read_bodies" in " ".join(one.cmdline())]
        return [self.pid, *readers]


@contextmanager
def started() -> Iterator[Gateway]:
    command = [sys.executable, "-m", "tests.bench.exposure.bodies", "--serve"]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as child:
        try:
            yield Gateway(child)
        finally:
            child.communicate("")


def memory_of(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


class Peak:
    """The most memory of several processes over what they had, those that ended included."""

    def __init__(self, gateway: Gateway, before: dict[int, int]) -> None:
        self._gateway, self._before = gateway, before
        self._most: dict[int, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def over(self) -> int:
        self._done.set()
        self._thread.join()
        return sum(most - self._before.get(pid, 0) for pid, most in self._most.items())

    def _look(self) -> None:
        for pid in self._gateway.processes():
            with suppress(OSError, StopIteration, ProcessLookupError):
                self._most[pid] = memory_of(pid, "VmHWM")

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._look()
        self._look()


def ask(port: int, path: str, body: bytes, json_length: int) -> tuple[int, float]:
    """Status of the answer, and the time until it came."""
    headers = [("Inference-Header-Content-Length", str(json_length))] if json_length else []
    asked = request("POST", path, body, headers=headers)
    began_s = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as own:
        own.sendall(asked)
        answer = own.recv(65_536)
    return int(answer.split(b" ", 2)[1]), (time.monotonic() - began_s) * 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=float, default=15.9)
    parser.add_argument("--serve", action="store_true", help="for the benchmark's own child")
    given = parser.parse_args()
    if given.serve:
        with TemporaryDirectory(prefix="ml-", dir="/tmp") as place:
            uvloop.run(_serve(Path(place)))
        return
    size = int(given.mib * 2**20)
    print(f"bodies of {given.mib:g} MiB")
    print("| body | status | answered after ms | stall ms | at work ms | memory over body |")
    print("|---|--:|--:|--:|--:|--:|")
    with started() as gateway:
        for name, path, body, json_length in bodies(size):
            ask(gateway.port, "/v1/query", b"{}", 0)
            gateway.stall_ms()
            before = {pid: memory_of(pid, "VmRSS") for pid in gateway.processes()}
            for pid in before:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            most = Peak(gateway, before)
            status, took_ms = ask(gateway.port, path, body, json_length)
            stall_ms, worked_ms = gateway.stall_ms()
            print(
                f"| {name} | {status} | {took_ms:.0f} | {stall_ms:.1f} | {worked_ms:.1f} |"
                f" {most.over() / len(body):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
