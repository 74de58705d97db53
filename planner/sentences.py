"""The words of a decision: why a variant was chosen, and why each other does not answer.

Every function returns a fragment that follows the variant's name: ``accuracy 90.00 % < 95.00 %``.
Numbers are written by ``variants.figures``; prices are of a million queries, as people are shown
them.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from types import MappingProxyType

from planner.types import Candidate, Query, Reason
from variants.figures import (
    accuracies,
    accuracy_floor,
    accuracy_text,
    apart,
    counted,
    figure,
    ms,
    seconds,
    usd,
)
from variants.types import DeviceKindName, Rule, Stage, Variant

NAMED = 5
"""Names that a sentence lists at most."""
LEAST_SAME = 2
"""Characters from the beginning that make two names alike."""
ALIKE = 0.75
"""How much of two names is the same, of those that are written alike: ``wine`` and ``wnie``."""
MOST_COMPARED, LONGEST_COMPARED = 100, 64
"""Names of which the most alike are looked for, and characters of what was asked: comparing takes
some 10 us a name, and anybody may ask for what is not there."""

CHOSEN: Mapping[str, str] = {
    Reason.PLANNED: "the plan sends such queries there",
    Reason.CHEAPEST_THAT_FITS: "the cheapest that fits",
    Reason.MOST_ACCURATE_THAT_FITS: "the most accurate that fits",
    Reason.EARLIEST_COMPLETION: "of those that fit it is done first",
    Reason.LEAST_ENERGY_THAT_FITS: "the one with least energy that fits",
    Reason.ENERGY_NOT_MEASURED: "the cheapest that fits: no energy was measured",
    Reason.PINNED: "the query names it",
    Reason.LOADED_ON_DEMAND: "nothing that is loaded fits, and there is time to load it",
    Reason.CANARY: "a new version proves itself on a share of the queries",
    Reason.BEST_EFFORT: "none fits, this is the nearest",
    Reason.CACHED: "it had answered the same before",
}
"""Why a variant was chosen: what follows its name and a colon."""


def is_canary() -> str:
    return "is a canary: answers only when pinned"


def not_named() -> str:
    return "the query names another variant"


def forbidden(rules: Sequence[Rule]) -> str:
    """Of a variant that these rules leave no device kind."""
    rule = rules[0]
    on = sorted({each.device_kind for each in rules if each.device_kind})
    where = f" on {' and '.join(on)}" if on and all(each.device_kind for each in rules) else ""
    return f"an operator has forbidden it{where} (rule {rule.id}{rule.why and f': {rule.why}'})"


def defaults_refuse(live_variants: int, best: float | None, floor: float | None) -> str:
    """Why queries of a task that name neither a variant nor an accuracy are refused; else empty.

    Args:
        best: the accuracy of the most accurate live variant; None where none is known.
        floor: what queries ask for which name none; None for any.
    """
    if live_variants == 0:
        return "no version is live, so queries that name no variant are refused"
    if best is None or floor is None or best >= floor:
        return ""
    asked = accuracy_floor(floor)
    return f"no live variant has the accuracy of {asked} that queries ask for which name none"


def below_floor(candidate: Candidate, floor: float) -> str:
    ours, limit = accuracies(candidate.accuracy, floor)
    if candidate.measured_accuracy is None:
        return f"accuracy {ours} < {limit}"
    said = counted(candidate.accuracy_rows, "row")
    was = accuracy_text(candidate.measured_accuracy)
    return f"accuracy {ours} < {limit} by feedback on {said}; {was} when measured"


def above_ceiling(candidate: Candidate, ceiling: float) -> str:
    ours, limit = apart(1_000 * candidate.price_usd_per_1k, 1_000 * ceiling, 3, usd)
    return f"a row alone costs {ours} > {limit} USD per million"


def too_many_rows(candidate: Candidate, rows: int) -> str:
    most = candidate.table.max_batch
    said = f"takes at most {counted(most, 'row')} in one query, not {rows:,}"
    return f"{said}: ask in parts of {most:,}"


def no_worker(
    candidate: Candidate,
    any_of_kind: bool,
    unmeasured: Iterable[str] = (),
    failed: Mapping[DeviceKindName, str] = MappingProxyType({}),
) -> str:
    """
    Args:
        unmeasured: kinds of workers that are there, on which it is yet to be measured.
        failed: such on which it could not be measured, and why.
    """
    if any_of_kind:
        return f"needs {figure(candidate.memory_mib)} MiB, more than a {candidate.device_kind} has"
    lacks = f"there is no worker of kind {candidate.device_kind}"
    if failed:
        return f"{not_measured(failed)}, and {lacks}"
    if kinds := sorted(unmeasured):
        return f"is yet to be measured on {' and '.join(kinds)}, and {lacks}"
    return lacks


def not_measured(failed: Mapping[DeviceKindName, str]) -> str:
    """By kind of worker, why it could not be measured there."""
    told = " and ".join(f"{kind} ({why})" for kind, why in failed.items())
    return f"could not be measured on {told}"


def too_slow(
    run_ms: float, latency_ms: float, *, way_ms: float = 0.0, confirmed: bool = True
) -> str:
    """By profile: even on an idle worker that has it loaded. The way is in ``run_ms``."""
    ours, limit = apart(run_ms, latency_ms)
    if run_ms - way_ms <= latency_ms:
        return f"p95 {ours} ms > {limit} ms, as the way to the worker and back takes {ms(way_ms)}"
    by = "" if confirmed else ", by a profile that is being checked: no batch has confirmed it yet"
    return f"p95 {ours} ms > {limit} ms{by}"


def too_late(run_ms: float, left_ms: float, *, way_ms: float = 0.0) -> str:
    """For the time that is left of the query's; the way is in ``run_ms``."""
    ours, limit = apart(run_ms, max(0.0, left_ms))
    way = run_ms - way_ms <= left_ms
    return f"p95 {ours} ms > {limit} ms left" + (f", {ms(way_ms)} of it the way" if way else "")


def kept(wait_ms: float) -> str:
    """Under overload, for a variant on workers that the plan gives to other classes."""
    return f"is kept for the queries that the plan gives it; its queue takes {ms(wait_ms)}"


def queued(wait_ms: float, run_ms: float, left_ms: float) -> str:
    ours, limit = apart(wait_ms + run_ms, left_ms)
    return f"waits {ms(wait_ms)}: done in {ours} ms > {limit} ms left"


def unloadable(candidate: Candidate) -> str:
    return f"cannot be loaded: {candidate.unloadable}"


def avoided(worker: str) -> str:
    return f"no worker holds it besides {worker}, which has just refused or lost the query"


def not_loaded(load_ms: float) -> str:
    return f"not loaded: loading takes {seconds(load_ms)}"


def not_in_service(variant: Variant, stage: Stage) -> str:
    """Why a variant answers nothing: what its version is, and what ends that."""
    if stage is not Stage.CANDIDATE:
        return f"its version {variant.model_version} is {stage}"
    promote = f"modelless promote {variant.task} {variant.model} {variant.version}"
    return (
        f"its version {variant.model_version} is a candidate, which answers nothing until"
        f" `{promote}`"
    )


def there_are(known: Iterable[str], asked: str) -> str:
    """What there is instead of a name that is none: first those that are the same for longest from
    their beginning on, else those that are written most alike, and how many more there are.

    It follows a sentence without its end: ``; there are: cnn-v1-fp32, cnn-v1-int8 and 3 more``.
    """
    names = sorted(known)
    if not names:
        return ""
    same = [_same_from_beginning(name, asked) for name in names]
    most = max(same)
    near = names
    if most >= LEAST_SAME:
        near = [name for name, length in zip(names, same, strict=True) if length == most]
    elif len(names) <= MOST_COMPARED and len(asked) <= LONGEST_COMPARED:
        spelled = {name.lower(): name for name in names}
        alike = get_close_matches(asked.lower(), spelled, NAMED, ALIKE)
        near = [spelled[one] for one in alike] or names
    shown = near[:NAMED]
    more = f" and {left} more" if (left := len(names) - len(shown)) else ""
    return f"; there are: {', '.join(shown)}{more}"


def _same_from_beginning(one: str, other: str) -> int:
    """So many characters are the same before the first that differs."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def asked(query: Query) -> str:
    """What a query needs, as part of a sentence: ``20 ms, accuracy 95.00 %``."""
    parts = [ms(query.latency_ms)]
    if query.accuracy is not None:
        parts.append(f"accuracy {accuracy_floor(query.accuracy)}")
    if query.cost is not None:
        parts.append(f"at most {usd(1_000 * query.cost)} USD per million")
    if query.rows > 1:
        parts.append(f"{query.rows:,} rows")
    return ", ".join(parts)
