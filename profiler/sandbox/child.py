"""The process in which a foreign model is tried: reads calls, one JSON line each, and answers them.

``python -m profiler.sandbox.child PARENT_PID MEMORY_MIB THREADS RUNTIME cpu|gpu``. Started by
``profiler.sandbox.sandbox`` only. It imports what a measurement needs and nothing more, so that
starting it is cheap and what it measures is the model.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from profiler.evaluation.accuracy import wants_memory
from profiler.sandbox import file_methods
from profiler.sandbox.calls import Announce, Arguments
from profiler.sandbox.held_variant import HeldVariant
from variants.errors import InvalidArtifact, ModellessError, VariantNotBuilt
from workers.runtimes.registry import import_libraries

PER_THREAD_MIB = 80
"""Address space, not memory: a thread's stack and its own allocation arena."""

TOO_MUCH_MEMORY = "it needs more memory than a trial may take"

FIRST_TO_GO = 1000
"""The highest ``oom_score_adj``: of several processes that have it, the largest goes first."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38

_held = HeldVariant()
METHODS: dict[str, Callable[[Arguments, Announce], dict[str, Any]]] = {
    "check": file_methods.check,
    "fix_axis": file_methods.fix_axis,
    "text_inputs": file_methods.text_inputs,
    "text_rows": file_methods.text_rows,
    "tokenizer": file_methods.tokenizer,
    "join": file_methods.join,
    "plain": file_methods.plain,
    "build": file_methods.build,
    "change": file_methods.change,
    "sizes": file_methods.sizes,
    "freed": file_methods.freed,
    "load": _held.load,
    "turn": _held.turn,
    "weigh": _held.weigh,
    "energy": _held.energy,
    "judge": _held.judge,
}


def import_back_end(runtime: str) -> None:
    """Import what a runtime needs; what is missing, the runtime will name."""
    started = time.perf_counter()
    with suppress(ImportError, OSError):
        import_libraries(runtime)
    _held.import_s = time.perf_counter() - started


def restrain(parent: int) -> None:
    """Die with the parent, gain no privileges, dump no core, and go first where memory runs out.

    On a cluster Ray gives the processes that answer queries the highest score, by which the kernel
    picks whom it kills for want of memory. With less, a model that takes too much would outlive all
    of them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the parent has ended")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this ends
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{FIRST_TO_GO}\n")


def limit_memory(memory_mib: float, threads: int) -> None:
    """Let this process map no more than so much memory beyond what is mapped now, and no more than
    it may anyway (``ulimit -v``): who has no privileges cannot raise that."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    mapped = pages * resource.getpagesize()
    limit = mapped + int((memory_mib + PER_THREAD_MIB * (threads + 2)) * 2**20)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def answer(request: Mapping[str, Any], announce: Announce) -> dict[str, Any]:
    """The result or the refusal of one call, as plain JSON values; never an exception."""
    try:
        return {"result": METHODS[request["method"]](request["arguments"], announce)}
    except InvalidArtifact as error:
        if _for_want_of_memory(error):
            return {"error": TOO_MUCH_MEMORY, "kind": "TrialTooLarge"}
        kind = {"kind": "VariantNotBuilt"} if isinstance(error, VariantNotBuilt) else {}
        return {"error": error.message, **kind}
    except ModellessError as error:
        if wants_memory(error):
            return {"error": TOO_MUCH_MEMORY, "kind": "TrialTooLarge"}
        return {"error": error.message.splitlines()[0][:500]}
    except MemoryError:
        return {"error": TOO_MUCH_MEMORY, "kind": "TrialTooLarge"}
    except Exception as error:
        return {"error": f"it failed unexpectedly: {type(error).__name__}: {error}"[:500]}


def _for_want_of_memory(error: BaseException) -> bool:
    """Whether what a refusal goes back to is that memory ran out, whatever it makes of that: native
    code says ``std::bad_alloc``, which whoever called it took for a fault of the model."""
    cause = error.__cause__
    return cause is not None and (wants_memory(cause) or _for_want_of_memory(cause))


def serve(requests: TextIO, replies: TextIO) -> None:
    """Answer calls until the other side closes."""

    def send(reply: Mapping[str, Any]) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    for line in requests:
        send(answer(json.loads(line), lambda *how_far: send({"progress": how_far})))


def main() -> None:
    parent, memory_mib, threads, runtime, device = sys.argv[1:]
    # Libraries print: only this process's own lines may reach the parent.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    restrain(int(parent))
    import_back_end(runtime)  # its libraries are not the model's memory
    if device == "cpu":  # else the parent looks at what is resident
        limit_memory(float(memory_mib), int(threads))
    serve(sys.stdin, replies)


if __name__ == "__main__":
    main()
