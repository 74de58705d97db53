"""What a gateway counts, once for each query: a few additions on plain attributes.

``controlplane.gateway.reports.metrics`` shows it to Prometheus.
"""

from collections.abc import Container, Mapping
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any

from controlplane.gateway.counting.client_counters import (
    ClientCounters,
    ConnectionCounters,
    OldKeys,
)
from controlplane.gateway.counting.task_counters import (
    CacheCounters,
    TaskCounters,
    VariantCounters,
    add_each,
)


class Counters:
    """All that one gateway counts, since it started."""

    def __init__(self) -> None:
        self.connections = ConnectionCounters()
        self.tasks: dict[str, TaskCounters] = {}
        self.clients: dict[str, ClientCounters] = {}
        """By the name of the key; empty for those who ask without. Only where there are keys."""
        self.old_tokens = OldKeys()
        """Of the operator."""
        self.retries: dict[str, int] = {}
        self.traces: dict[str, int] = {}
        """Spans of traces that were sent to the collector, and that were dropped."""
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
                name: _plain(client) | client.old_keys.plain()
                for name, client in list(self.clients.items())
            },
            "old_tokens": self.old_tokens.plain(),
            "retries": dict(self.retries),
            "traces": dict(self.traces),
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
            client.old_keys.add(told)
        self.old_tokens.add(other.get("old_tokens", {}))
        add_each(self.retries, other["retries"])
        add_each(self.traces, other.get("traces", {}))
        connections = self.connections
        for protocol, code, count in other["refusals"]:
            key = (protocol, code)
            connections.refusals[key] = connections.refusals.get(key, 0) + count
        add_each(connections.ends, other["ends"])
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
        found["classes"] = {number: list(said) for number, said in list(counted.classes.items())}
    return _plain(task) | {
        "variants": variants,
        "errors": dict(task.errors),
        "choices": dict(task.choices),
        "buckets": list(task.buckets),
        "cache": None if task.cache is None else _plain(task.cache),
    }
