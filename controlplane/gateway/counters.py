"""What a gateway counts, once for each query: a few additions on plain attributes.

``metrics`` shows it to Prometheus.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from time import time
from typing import Any, NamedTuple, Self

from planner.types import Client
from variants.errors import InvalidInput

BLOCKED = "BLOCKED"
"""Stands beside error codes for queries that were refused because a worker ended while it ran the
same. They are told as ``InvalidInput``, so that nobody sends them again."""
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

    def add(self, told: Mapping[str, Any]) -> None:
        """Add what another gateway has counted of the variant (``Counters.add``)."""
        for size, (rows, took_us) in told["batches"].items():
            counted = self.batches.setdefault(int(size), [0, 0.0])
            counted[0] += rows
            counted[1] += took_us
        for each in fields(self):
            if each.name == "last_ms":  # of one machine, so the clock is the same
                self.last_ms = max(self.last_ms, told["last_ms"])
            elif each.name != "batches":
                # A gateway of an earlier release does not tell what was added since.
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

    def chosen(self, reason: str) -> None:
        """Count why the variant of an answer was chosen."""
        self.choices[reason] = self.choices.get(reason, 0) + 1

    def failed(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def add(self, told: Mapping[str, Any]) -> None:
        """Add what another gateway has counted of the task (``Counters.add``)."""
        for name, counted in told["variants"].items():
            self.of(name).add(counted)
        _add_each(self.errors, told["errors"])
        _add_each(self.choices, told["choices"])
        self.buckets = [a + b for a, b in zip(self.buckets, told["buckets"], strict=True)]
        self.latency_ms += told["latency_ms"]
        self.blocked += told["blocked"]
        # A gateway of an earlier release does not tell it.
        self.infeasible_answered += told.get("infeasible_answered", 0)
        if told["cache"] is not None:
            self.cache = self.cache or CacheCounters()
            for each in fields(CacheCounters):
                more = told["cache"][each.name]
                setattr(self.cache, each.name, getattr(self.cache, each.name) + more)


class ByOldKey(Client):
    """A client that presents its older key, while it changes to another one."""

    digest: str

    @classmethod
    def of(cls, client: Client, digest: str) -> Self:
        found = cls(*client)
        found.digest = digest
        return found


class OldKeyUse(NamedTuple):
    """How the older key of a client is used while the client changes to another one.

    Both are Unix times.
    """

    since_s: float
    """From when on this was looked at."""
    last_s: float = 0.0
    """When a query came with it last; 0 where none did."""

    def and_of(self, other: "OldKeyUse") -> "OldKeyUse":
        """The same of two gateways together."""
        return OldKeyUse(min(self.since_s, other.since_s), max(self.last_s, other.last_s))


@dataclass(slots=True)
class ClientCounters:
    """What was asked by one client, with whichever of its keys."""

    answered: int = 0
    refused: int = 0
    """Whatever the error was."""
    old_keys: dict[str, OldKeyUse] = field(default_factory=dict)
    """By the digest of a key that another one has come beside (``modelless keys rotate``)."""

    def has_old_key(self, digest: str) -> None:
        """From now on it is looked at whether a query comes with this one."""
        self.old_keys.setdefault(digest, OldKeyUse(time()))

    def asked_by_old_key(self, digest: str) -> None:
        """A query came with this one."""
        now_s = time()
        known = self.old_keys.get(digest)
        self.old_keys[digest] = OldKeyUse(now_s if known is None else known.since_s, now_s)

    def ended(self, *, answered: bool) -> None:
        """Count a query."""
        if answered:
            self.answered += 1
        else:
            self.refused += 1


class ConnectionCounters:
    """What became of clients' connections."""

    def __init__(self) -> None:
        self.refusals: dict[tuple[str, str], int] = {}
        """By protocol and code of the error."""
        self.ends: dict[str, int] = {}
        """By why the gateway ended them."""
        self.open: dict[str, Callable[[], int]] = {}
        """By protocol, what counts those that are open."""
        self.passed = 0
        """Those that went on at another gateway of the machine."""

    def went_on(self, count: int) -> None:
        """So many have been passed on to another gateway."""
        self.passed += count

    def refused(self, protocol: str, code: str) -> None:
        key = (protocol, code)
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def ended(self, reason: str) -> None:
        self.ends[reason] = self.ends.get(reason, 0) + 1


class Counters:
    """All that one gateway counts, since it started."""

    def __init__(self) -> None:
        self.connections = ConnectionCounters()
        self.tasks: dict[str, TaskCounters] = {}
        self.clients: dict[str, ClientCounters] = {}
        """By the name of the key; empty for those who ask without. Only where there are keys."""
        self.retries: dict[str, int] = {}
        self.in_flight = 0
        self.busy: dict[str, float] = {}
        """By gateway: the share of the time between the last two reports that its event loop
        computed."""

    def task(self, name: str) -> TaskCounters:
        found = self.tasks.get(name)
        if found is None:
            found = self.tasks[name] = TaskCounters()
        return found

    def forget_tasks(self, kept: Container[str]) -> None:
        """Forget all tasks but these."""
        for name in [name for name in self.tasks if name not in kept]:
            del self.tasks[name]

    def client(self, name: str) -> ClientCounters:
        found = self.clients.get(name)
        if found is None:
            found = self.clients[name] = ClientCounters()
        return found

    def retried(self, reason: str) -> None:
        self.retries[reason] = self.retries.get(reason, 0) + 1

    def plain(self, *, gone: bool = False) -> dict[str, Any]:
        """The same in dictionaries, lists and numbers; of a gateway that is ``gone``, only what
        stays true then.

        May be called in another thread than the one that counts: queries that end meanwhile may
        then be in a part of it only.
        """
        connections = self.connections
        found = {
            "tasks": {name: _plain_task(task) for name, task in list(self.tasks.items())},
            "clients": {
                name: _plain(client)
                | {"old_keys": {digest: list(use) for digest, use in list(client.old_keys.items())}}
                for name, client in list(self.clients.items())
            },
            "retries": dict(self.retries),
            "refusals": [[*key, count] for key, count in list(connections.refusals.items())],
            "ends": dict(connections.ends),
            "passed": connections.passed,
            "in_flight": self.in_flight,
            "busy": dict(self.busy),
            "open": {protocol: count() for protocol, count in list(connections.open.items())},
        }
        return staying(found) if gone else found

    def add(self, other: Mapping[str, Any]) -> None:
        """Add what another gateway has counted, as ``plain`` gave it, also by way of JSON."""
        for name, told in other["tasks"].items():
            self.task(name).add(told)
        for name, told in other.get("clients", {}).items():
            client = self.client(name)
            client.answered += told["answered"]
            client.refused += told["refused"]
            for digest, (since_s, last_s) in told.get("old_keys", {}).items():
                use = OldKeyUse(since_s, last_s)
                known = client.old_keys.get(digest)
                client.old_keys[digest] = use if known is None else use.and_of(known)
        _add_each(self.retries, other["retries"])
        connections = self.connections
        for protocol, code, count in other["refusals"]:
            key = (protocol, code)
            connections.refusals[key] = connections.refusals.get(key, 0) + count
        _add_each(connections.ends, other["ends"])
        connections.passed += other.get("passed", 0)
        self.in_flight += other.get("in_flight", 0)
        self.busy |= other.get("busy", {})
        for protocol, count in other.get("open", {}).items():
            before = connections.open.get(protocol, int)()
            connections.open[protocol] = partial(int, before + count)


def staying(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Of what ``Counters.plain`` gave, what stays true when the gateway is gone."""
    tasks = {
        name: task
        if task["cache"] is None
        else {**task, "cache": {**task["cache"], "answers": 0, "size_bytes": 0}}
        for name, task in plain["tasks"].items()
    }
    there = ("in_flight", "busy", "open")
    return {name: part for name, part in plain.items() if name not in there} | {"tasks": tasks}


_NAMES = {
    kind: tuple(each.name for each in fields(kind))
    for kind in (VariantCounters, CacheCounters, TaskCounters, ClientCounters)
}
_values = {kind: attrgetter(*names) for kind, names in _NAMES.items()}


def _plain(counted: Any) -> dict[str, Any]:
    """The fields by name: what ``dataclasses.asdict`` does takes ten times as long."""
    kind = type(counted)
    return dict(zip(_NAMES[kind], _values[kind](counted), strict=True))


def _plain_task(task: TaskCounters) -> dict[str, Any]:
    variants: dict[str, dict[str, Any]] = {}
    for name, counted in list(task.variants.items()):
        found = variants[name] = _plain(counted)
        found["batches"] = {size: list(both) for size, both in list(counted.batches.items())}
    return _plain(task) | {
        "variants": variants,
        "errors": dict(task.errors),
        "choices": dict(task.choices),
        "buckets": list(task.buckets),
        "cache": None if task.cache is None else _plain(task.cache),
    }


def _add_each(to: dict[Any, int], told: Mapping[Any, int]) -> None:
    for key, count in told.items():
        to[key] = to.get(key, 0) + count
