"""Sentences: what a decision says to the person who asks why.

A choice carries a code only; its sentence is made here when somebody reads it. Numbers are written
with as many digits as it takes to tell a value from its limit.
"""

from collections.abc import Callable

from planner.types import Candidate, Choice, Query, Reason

Writer = Callable[[float, int], str]

_WHY = {
    Reason.CHEAPEST_THAT_FITS: "the cheapest that fits the SLO",
    Reason.MOST_ACCURATE_THAT_FITS: "the most accurate that fits the SLO",
    Reason.EARLIEST_COMPLETION: "the earliest to complete of those that fit the SLO",
    Reason.PINNED: "the query names it, and it fits the SLO",
    Reason.LOADED_ON_DEMAND: "no loaded variant fits the SLO, and this one is loaded in time",
    Reason.PLANNED: "the plan sends queries of this SLO there, and it fits",
    Reason.BEST_EFFORT: "nothing fits the SLO; of the loaded variants this one misses it least",
}


def sentence(choice: Choice) -> str:
    """Why a choice was made: ``cnn-v1-onnx-fp32 on w1: the cheapest that fits the SLO (...).``"""
    candidate = choice.candidate
    return (
        f"{candidate.variant} on {choice.worker.id}: {_WHY[choice.reason]} "
        f"(predicted {ms(choice.predicted_ms)}, accuracy {_trimmed(candidate.accuracy, 4)}, "
        f"{_usd(candidate.price_usd_per_1k, 3)} USD per 1,000)."
    )


def is_canary() -> str:
    return "is a canary: answers only when pinned"


def below_floor(candidate: Candidate, floor: float) -> str:
    ours, limit = _apart(candidate.accuracy, floor, _trimmed, 3)
    return f"accuracy {ours} < {limit}"


def above_ceiling(candidate: Candidate, ceiling: float) -> str:
    ours, limit = _apart(candidate.price_usd_per_1k, ceiling, _usd, 3)
    return f"costs {ours} > {limit} USD per 1,000"


def too_many_rows(candidate: Candidate, rows: int) -> str:
    return f"takes at most {candidate.table.max_batch} rows at once, not {rows}"


def no_worker(candidate: Candidate, any_of_kind: bool) -> str:
    if any_of_kind:
        return f"needs {candidate.memory_mib:.0f} MiB, more than a {candidate.device_kind} has"
    return f"there is no worker of kind {candidate.device_kind}"


def too_slow(run_ms: float, latency_ms: float) -> str:
    """By profile: even on an idle worker that has it loaded. Transport is in ``run_ms``."""
    ours, limit = _apart(run_ms, latency_ms, _trimmed, 1)
    return f"p95 {ours} ms > {limit} ms"


def too_late(run_ms: float, left_ms: float) -> str:
    ours, limit = _apart(run_ms, max(0.0, left_ms), _trimmed, 1)
    return f"p95 {ours} ms > {limit} ms left"


def kept(wait_ms: float) -> str:
    """Under overload, on workers that the plan gives to others."""
    return f"is kept for the queries that the plan gives it; its queue takes {ms(wait_ms)}"


def queued(wait_ms: float, run_ms: float, left_ms: float) -> str:
    ours, limit = _apart(wait_ms + run_ms, left_ms, _trimmed, 1)
    return f"waits {ms(wait_ms)}: done in {ours} ms > {limit} ms left"


def avoided(worker: str) -> str:
    return f"no worker holds it besides {worker}, which has just refused or lost the query"


def not_loaded(load_ms: float) -> str:
    return f"not loaded: loading takes {load_ms / 1_000:.1f} s"


def asked(query: Query) -> str:
    """What a query needs, as part of a sentence: ``20 ms, accuracy 0.95``."""
    parts = [ms(query.latency_ms)]
    if query.accuracy is not None:
        parts.append(f"accuracy {_trimmed(query.accuracy, 4)}")
    if query.cost is not None:
        parts.append(f"at most {_usd(query.cost, 3)} USD per 1,000")
    if query.rows > 1:
        parts.append(f"{query.rows} rows")
    return ", ".join(parts)


def ms(value: float) -> str:
    """One decimal, or two significant digits below a millisecond."""
    if 0 < value < 1:
        return f"{value:.2g} ms"
    return f"{_trimmed(value, 1)} ms"


def _trimmed(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def _usd(value: float, digits: int) -> str:
    """Prices are small: ``digits`` significant ones, never in exponents."""
    if value <= 0:
        return "0"
    leading = 0
    while value * 10**leading < 1 and leading < 18:
        leading += 1
    return _trimmed(value, leading + digits - 1)


def _apart(value: float, limit: float, write: Writer, digits: int) -> tuple[str, str]:
    """Two different numbers, written so that they read differently."""
    for more in range(digits, 18):
        ours, theirs = write(value, more), write(limit, more)
        if ours != theirs:
            return ours, theirs
    return repr(value), repr(limit)
