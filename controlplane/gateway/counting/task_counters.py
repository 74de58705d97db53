"""What a gateway counts of one task and its variants, once for each query."""

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from controlplane.http_errors import CLIENT_GONE
from variants.errors import InvalidInput

BLOCKED = "BLOCKED"
"""Stands beside error codes for queries that were refused because a worker ended while it ran the
same. They are told as ``InvalidInput``, so that nobody sends them again."""

GONE = ""
"""Under this name stands together what variants had counted that have left the catalog. Sums of a
task have it, and nothing that is shown by variant."""

BOUNDS_MS = (0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 20, 30, 50, 75, 100, 200, 500, 1000, 2000, 5000, 10000)


@dataclass(slots=True)
class VariantCounters:
    """What one variant of a task has answered through this gateway."""

    met: int = 0
    missed: int = 0
    rows: int = 0
    queue_us: int = 0
    run_us: int = 0
    cost_usd: float = 0.0
    read_ms: float = 0.0
    """From the first byte of each query to its tensors."""
    encode_ms: float = 0.0
    """From each worker's reply to the bytes of the answer."""
    elapsed_ms: float = 0.0
    """From the first byte to the answer."""
    batches: dict[int, list[float]] = field(default_factory=dict)
    """Batch size to rows answered in such batches and the time that these rows stand for, in µs: of
    a batch's own time each row has an equal part."""
    last_ms: float = 0.0
    """When it answered last, by the query path's clock."""
    hits: int = 0
    """Queries that got a kept answer of it."""
    collapsed: int = 0
    """Queries that got the answer of a run that an equal query had begun."""
    reused_rows: int = 0
    """Of both kinds."""
    hit_ms: float = 0.0
    """What finding and encoding took, of both kinds; without the wait for a run."""
    cache_misses: int = 0
    """Runs of tasks whose answers are shared."""
    cache_miss_ms: float = 0.0
    """What looking for an answer and keeping the new one took."""
    right: int = 0
    """Rows whose class clients have said to be right."""
    wrong: int = 0
    classes: dict[int, list[int]] = field(default_factory=dict)
    """Of tasks whose accuracy is by class, what clients have said of each, by its number: rows of
    it that were answered so, rows of it that were answered otherwise, and rows of others that were
    answered so (``planner.feedback.by_class``)."""

    def said(self, rows: Iterable[tuple[int, int]]) -> None:
        """Count rows by the numbers of their right class and of the one that was answered."""
        for right, answered in rows:
            if right == answered:
                self._of_class(right)[0] += 1
            else:
                self._of_class(right)[1] += 1
                self._of_class(answered)[2] += 1

    def _of_class(self, number: int) -> list[int]:
        return self.classes.setdefault(number, [0, 0, 0])

    def add(self, told: Mapping[str, Any]) -> None:
        """Add what another gateway has counted of the variant (``Counters.add``)."""
        for size, (rows, took_us) in told["batches"].items():
            counted = self.batches.setdefault(int(size), [0, 0.0])
            counted[0] += rows
            counted[1] += took_us
        # A gateway of an earlier release does not tell what was added since.
        for number, said in told.get("classes", {}).items():
            known = self._of_class(int(number))
            known[:] = [a + b for a, b in zip(known, said, strict=True)]
        for each in fields(self):
            if each.name == "last_ms":  # of one machine, so the clock is the same
                self.last_ms = max(self.last_ms, told["last_ms"])
            elif each.name not in ("batches", "classes"):
                setattr(self, each.name, getattr(self, each.name) + told.get(each.name, 0))


@dataclass(slots=True)
class CacheCounters:
    """The kept answers of one task."""

    answers: int = 0
    size_bytes: int = 0
    evicted: int = 0
    """Forgotten for want of room, not of age."""


@dataclass(slots=True)
class TaskCounters:
    """What was asked of one task through this gateway, and how it ended."""

    variants: dict[str, VariantCounters] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=dict)
    """Answers by why their variant was chosen: the values of ``planner.types.Reason``."""
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    """Answers by latency: one count for each of ``BOUNDS_MS``, and one for those above all."""
    latency_ms: float = 0.0
    """The sum over all answers."""
    blocked: int = 0
    """Queries whose content may have ended a worker, refused."""
    infeasible_answered: int = 0
    """Of the answers that missed their SLO: no variant could have met it, and best effort was asked
    for."""
    gave_up_ms: float = 0.0
    """For how long those clients waited, in all, that went before their answers, ..."""
    gave_up_of_ms: float = 0.0
    """... and how much time their queries had."""
    cache: CacheCounters | None = None
    """None while its answers are not shared."""

    def errors_by_fault(self) -> dict[str, int]:
        """The errors by code, those that were blocked as ``BLOCKED``: it may be the variant's
        fault, while all else that is told as ``InvalidInput`` is the client's."""
        if not self.blocked:
            return dict(self.errors)
        wrong = self.errors.get(InvalidInput.code, 0) - self.blocked
        return {**self.errors, InvalidInput.code: wrong, BLOCKED: self.blocked}

    def answered(
        self,
        variant: str,
        elapsed_ms: float,
        rows: int,
        queue_us: int,
        run_us: int,
        cost_usd: float,
        met: bool,
        *,
        batch_size: int,
        read_ms: float,
        encode_ms: float,
        now_ms: float,
    ) -> None:
        """Count one answer. ``cost_usd`` is of all its rows."""
        counters = self._in_all(variant, elapsed_ms, rows, met, now_ms)
        counters.queue_us += queue_us
        counters.run_us += run_us
        counters.cost_usd += cost_usd
        counters.read_ms += read_ms
        counters.encode_ms += encode_ms
        batches = counters.batches.get(batch_size)
        if batches is None:
            counters.batches[batch_size] = [rows, rows * run_us / batch_size]
        else:
            batches[0] += rows
            batches[1] += rows * run_us / batch_size

    def reused(
        self,
        variant: str,
        elapsed_ms: float,
        rows: int,
        met: bool,
        *,
        now_ms: float,
        lookup_ms: float,
        kept: bool,
    ) -> None:
        """Count an answer without a run of its own: a kept one, or one of an equal query's run."""
        counters = self._in_all(variant, elapsed_ms, rows, met, now_ms)
        if kept:
            counters.hits += 1
        else:
            counters.collapsed += 1
        counters.reused_rows += rows
        counters.hit_ms += lookup_ms

    def cache_missed(self, variant: str, took_ms: float) -> None:
        """Count a run whose answer was not kept yet."""
        counters = self.of(variant)
        counters.cache_misses += 1
        counters.cache_miss_ms += took_ms

    def _in_all(
        self, variant: str, elapsed_ms: float, rows: int, met: bool, now_ms: float
    ) -> VariantCounters:
        """Count what answers of every kind have; the variant's counters, for the rest."""
        counters = self.variants.get(variant)
        if counters is None:
            counters = self.of(variant)
        if met:
            counters.met += 1
        else:
            counters.missed += 1
        counters.rows += rows
        counters.elapsed_ms += elapsed_ms
        counters.last_ms = now_ms
        self.buckets[bisect_left(BOUNDS_MS, elapsed_ms)] += 1
        self.latency_ms += elapsed_ms
        return counters

    def of(self, variant: str) -> VariantCounters:
        """What is counted of a variant."""
        counters = self.variants.get(variant)
        if counters is None:
            counters = self.variants[variant] = VariantCounters()
        return counters

    def forget_variants(self, kept: Container[str]) -> None:
        """Keep the counts of all variants but these under ``GONE``: sums of a task never fall. What
        clients have said of their answers says nothing without a variant."""
        for name in [name for name in self.variants if name != GONE and name not in kept]:
            counted = replace(self.variants.pop(name), right=0, wrong=0, classes={})
            self.of(GONE).add(asdict(counted))

    def chosen(self, reason: str) -> None:
        """Count why the variant of an answer was chosen."""
        self.choices[reason] = self.choices.get(reason, 0) + 1

    def failed(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def gave_up(self, waited_ms: float, latency_ms: float) -> None:
        """Count a query whose client has gone.

        Args:
            waited_ms: from its first byte.
            latency_ms: of its SLO.
        """
        self.failed(CLIENT_GONE)
        self.gave_up_ms += waited_ms
        self.gave_up_of_ms += latency_ms

    def add(self, told: Mapping[str, Any]) -> None:
        """Add what another gateway has counted of the task (``Counters.add``)."""
        for name, counted in told["variants"].items():
            self.of(name).add(counted)
        add_each(self.errors, told["errors"])
        add_each(self.choices, told["choices"])
        self.buckets = [a + b for a, b in zip(self.buckets, told["buckets"], strict=True)]
        self.latency_ms += told["latency_ms"]
        self.blocked += told["blocked"]
        # A gateway of an earlier release does not tell it.
        self.infeasible_answered += told.get("infeasible_answered", 0)
        self.gave_up_ms += told.get("gave_up_ms", 0.0)
        self.gave_up_of_ms += told.get("gave_up_of_ms", 0.0)
        if told["cache"] is not None:
            self.cache = self.cache or CacheCounters()
            for each in fields(CacheCounters):
                more = told["cache"][each.name]
                setattr(self.cache, each.name, getattr(self.cache, each.name) + more)


def add_each(to: dict[Any, int], told: Mapping[Any, int]) -> None:
    """Add what another gateway told, by its keys."""
    for key, count in told.items():
        to[key] = to.get(key, 0) + count
