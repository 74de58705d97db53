"""ProtocolViews: what the Open Inference Protocol says of the server, its tasks and variants.

Values are as the protocol's JSON has them; REST sends them as they are, gRPC as messages of the
same fields. The model is the task, and its versions are the variants: by their names, or by numbers
for clients that know no other versions. A number is made of the names of task and variant, so it is
the same at every gateway and after every restart.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict
from importlib.metadata import version as version_of
from typing import Any

from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.counting.task_counters import VariantCounters
from controlplane.gateway.knowledge import Knowledge
from controlplane.gateway.query.json_tensors import MAX_ROWS
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.query.v2.datatypes import BYTES, V2_NAMES
from planner.sentences import NAMED, there_are
from variants.buckets import bucket_of
from variants.errors import NotFound, TaskNotFound
from variants.figures import some_of
from variants.texts.inputs import TEXT
from variants.types import CatalogState, Stage, Task, TaskName, TensorSpec, VariantName
from workers.types import variant_id

EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "statistics",
]
NUMBER_BITS = 52
"""Of a variant's number: numbers in JSON are exact up to 2**53."""
TEXTS = {"name": TEXT, "datatype": BYTES, "shape": [-1]}
"""The input of a task that takes texts. It takes numbers of tokens as well, by the names of the
model's own inputs, which ``/v1/tasks`` says."""
TEXTS_CONFIGURED = {"name": TEXT, "data_type": "TYPE_STRING", "dims": [1]}


def number_of(task: str, variant: str) -> int:
    """The number of a variant among the versions of its task."""
    return variant_id(task, variant) >> (64 - NUMBER_BITS)


class ProtocolViews:
    """Reads what one gateway knows. A version is the name of a variant, its number, or empty."""

    def __init__(
        self,
        known: Knowledge,
        path: QueryPath,
        is_ready: Callable[[], bool],
        total: Callable[[], Awaitable[Counters]],
    ) -> None:
        """
        Args:
            known: what the gateway knows.
            path: answers its queries.
            is_ready: says whether the gateway takes requests now.
            total: what it and the gateways that share its port have counted.
        """
        self._total = total
        self._known = known
        self._path = path
        self.is_ready = is_ready
        self._numbers: dict[TaskName, dict[str, str]] = {}
        self._numbered_of: CatalogState = (-1, "")
        self._zero_ms = time.time() * 1000 - path.clock_ms()
        """When the query path's clock was 0, in ms since 1970."""

    # -- names ----------------------------------------------------------------------------------

    def variant_of(self, task: TaskName, version: str) -> str:
        """The variant that a version names; what is no number is taken for a name."""
        return self._numbered(task).get(version, version) if version.isdecimal() else version

    def _numbered(self, task: TaskName) -> dict[str, str]:
        catalog = self._known.catalog
        if catalog.state != self._numbered_of:
            self._numbered_of = catalog.state
            self._numbers = {}
        found = self._numbers.get(task)
        if found is None:
            parts = self.parts(task)
            found = self._numbers[task] = {
                str(number_of(task, one.name)): one.name
                for one in catalog.variants
                if one.task in parts
            }
        return found

    def parts(self, task: TaskName) -> tuple[TaskName, ...]:
        """The tasks that answer to a name: the task itself, or its buckets of lengths."""
        of_lengths = self._known.tasks.bucketed.get(task)
        return (task,) if of_lengths is None else tuple(one.name for one in of_lengths.buckets)

    def _parts(self, task: Task) -> tuple[Task, ...]:
        """The buckets of lengths of a task, if that is what it is made of."""
        of_lengths = self._known.tasks.bucketed.get(task.name)
        return () if of_lengths is None else of_lengths.buckets

    def _task(self, name: str) -> Task:
        tasks = self._known.tasks
        found = tasks.get(TaskName(name))
        if found is None:
            of_lengths = tasks.bucketed.get(TaskName(name))
            if of_lengths is None:
                known = there_are([*tasks, *tasks.bucketed], name)
                known = known or "; nothing is registered yet"
                raise TaskNotFound(f"there is no task {name[:128]!r}{known}")
            return of_lengths.face
        return found

    def _ready(self, task: TaskName) -> set[VariantName]:
        """Variants that a worker holds; of several lengths for each of them."""
        ready = (self._known.workers.ready(part) for part in self.parts(task))
        return set[VariantName].intersection(*ready)

    def _variants(self, task: Task, *stages: Stage) -> list[str]:
        """Variants of the task's versions at these stages, else live and canary, by name; of
        several lengths those that all of them have."""
        catalog, parts = self._known.catalog, self.parts(task.name)
        answering = {
            (v.task, v.model, v.version)
            for v in catalog.versions
            if v.task in parts and v.stage in (stages or (Stage.LIVE, Stage.CANARY))
        }
        found = Counter(
            v.name for v in catalog.variants if (v.task, v.model, v.version) in answering
        )
        return [name for name, count in found.items() if count == len(parts)]

    def _named(self, task: Task, version: str) -> str:
        """The variant of the task that a version names."""
        variant = self.variant_of(task.name, version)
        if variant not in (all_ := self._variants(task)):
            named = version[:128]
            if there := [one for one in self._parts(task) if variant in self._variants(one)]:
                lengths = some_of([str(bucket_of(one).length) for one in there], NAMED)
                raise NotFound(
                    f"variant {variant!r} is there for the length{'s' if len(there) > 1 else ''}"
                    f" {lengths} of task {task.name!r}, and versions are there for all lengths: ask"
                    f" task {there[0].name!r}"
                )
            raise NotFound(f"task {task.name!r} has no variant {named!r}{there_are(all_, named)}")
        return variant

    # -- what is asked --------------------------------------------------------------------------

    def task_ready(self, name: str, version: str = "") -> bool:
        """Whether some worker holds the variant, or else one that queries may be given unasked.

        Raises:
            TaskNotFound: there is no such task.
            NotFound: it has no such variant.
        """
        task = self._task(name)
        if version:
            return self._named(task, version) in self._ready(task.name)
        parts = self.parts(task.name)
        if len(parts) > 1 or parts[0] != task.name:
            return all(map(self.task_ready, parts))
        return not self._ready(task.name).isdisjoint(self._variants(task, Stage.LIVE))

    def server(self) -> dict[str, Any]:
        return {"name": "modelless", "version": version_of("modelless"), "extensions": EXTENSIONS}

    def metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Signature and versions of a task.

        Raises:
            TaskNotFound: there is no such task.
            NotFound: it has no such variant.
        """
        task = self._task(name)
        if version:
            self._named(task, version)
        return {
            "name": task.name,
            "versions": self._variants(task),
            "platform": "modelless",
            "inputs": [TEXTS] if task.text else [_tensor(spec) for spec in task.inputs],
            "outputs": [_tensor(spec) for spec in task.outputs],
        }

    def described(self, name: str, version: str = "") -> dict[str, Any]:
        """The metadata, and beside them, where its classes have names, the task's ``labels``.

        Raises:
            TaskNotFound, NotFound: as ``metadata``.
        """
        found, labels = self.metadata(name, version), self._task(name).labels
        return found | ({"labels": list(labels)} if labels else {})

    def properties(self, name: str) -> dict[str, str]:
        """The number of each version to its name.

        Raises:
            TaskNotFound: there is no such task.
        """
        task = self._task(name)
        return {str(number_of(task.name, one)): one for one in self._variants(task)}

    def config(self, name: str, version: str = "") -> dict[str, Any]:
        """The configuration, as far as a task has what Triton's models have.

        Raises:
            TaskNotFound: there is no such task.
            NotFound: it has no such variant.
        """
        task = self._task(name)
        variants = [self._named(task, version)] if version else self._variants(task)
        numbers = {number_of(task.name, one): one for one in variants}
        return {
            "name": task.name,
            "platform": "modelless",
            "backend": "modelless",
            "version_policy": {"specific": {"versions": list(numbers)}},
            # Canaries do not answer who names no version.
            "max_batch_size": self._most_rows(
                task, variants if version else self._variants(task, Stage.LIVE) or variants
            ),
            "input": [TEXTS_CONFIGURED]
            if task.text
            else [_configured(spec) for spec in task.inputs],
            "output": [_configured(spec) for spec in task.outputs],
            # Batches are formed by deadline, and nothing waits to fill one.
            "dynamic_batching": {"preferred_batch_size": [], "max_queue_delay_microseconds": 0},
            "response_cache": {"enable": task.sharing is not None},
            "parameters": {
                f"version {number}": {"string_value": one} for number, one in numbers.items()
            },
        }

    def index(self, *, ready_only: bool = False) -> list[dict[str, Any]]:
        """The variants of every task, and which of them are loaded."""
        rows = []
        known = self._known.tasks
        for task in (*known.values(), *(one.face for one in known.bucketed.values())):
            ready = self._ready(task.name)
            views = map(self._path.snapshot.tasks.get, self.parts(task.name))
            excluded: dict[str, str] = {
                name: why
                for view in views
                if view is not None
                for name, why in view.excluded.items()
            }
            for variant in self._variants(task):
                row = {"name": task.name, "version": variant, "state": "READY", "reason": ""}
                if variant not in ready:
                    row["state"] = "UNAVAILABLE"
                    why = excluded.get(variant)
                    row["reason"] = why or "not loaded; loaded when a query needs it"
                if not ready_only or variant in ready:
                    rows.append(row)
        return rows

    async def statistics(self, name: str = "", version: str = "") -> list[dict[str, Any]]:
        """What the gateways here have answered since they started, by variant; times in
        nanoseconds.

        Args:
            name: of a task; empty for all.

        Raises:
            TaskNotFound: there is no such task.
            NotFound: it has no such variant.
        """
        tasks = [self._task(name)] if name else list(self._known.tasks.values())
        rows = []
        total = await self._total()
        for task in tasks:
            named = [self._named(task, version)] if version else self._variants(task)
            counted = [total.tasks[part] for part in self.parts(task.name) if part in total.tasks]
            for variant in named:
                counters = VariantCounters()
                for each in counted:
                    if variant in each.variants:
                        counters.add(asdict(each.variants[variant]))
                rows.append(
                    {
                        "name": task.name,
                        # As it was asked for: who asks by number reads numbers.
                        "version": version or str(number_of(task.name, variant)),
                        "variant": variant,
                        **self._counted(counters),
                    }
                )
        return rows

    def _counted(self, counters: VariantCounters) -> dict[str, Any]:
        answered = counters.met + counters.missed
        queue_ns = counters.queue_us * 1_000
        run_ns = counters.run_us * 1_000
        reused = counters.hits + counters.collapsed
        ran = answered - reused
        batches = sorted(counters.batches.items())
        return {
            "last_inference": round(self._zero_ms + counters.last_ms) if answered else 0,
            "inference_count": counters.rows - counters.reused_rows,
            "execution_count": round(sum(rows / size for size, (rows, _) in batches)),
            "inference_stats": {
                "success": _duration(answered, counters.elapsed_ms * 1e6),
                "fail": _duration(0, 0),
                "queue": _duration(ran, queue_ns),
                "compute_input": _duration(ran, counters.read_ms * 1e6),
                "compute_infer": _duration(ran, run_ns),
                "compute_output": _duration(ran, counters.encode_ms * 1e6),
                "cache_hit": _duration(reused, counters.hit_ms * 1e6),
                "cache_miss": _duration(counters.cache_misses, counters.cache_miss_ms * 1e6),
            },
            "batch_stats": [
                {
                    "batch_size": size,
                    "compute_infer": _duration(round(rows / size), run_us * 1e3),
                }
                for size, (rows, run_us) in batches
            ],
        }

    def _most_rows(self, task: Task, variants: Collection[str]) -> int:
        """The most rows of one query that each of the variants takes, on every kind it runs on:
        those of which a worker is there or wanted, where it was measured on any of them.

        Clients send as many at once. Which variant answers is for the SLO to say, so that more rows
        may find none.
        """
        parts = self.parts(task.name)
        snapshot = self._path.snapshot
        there = {*snapshot.kinds, *snapshot.wanted.kinds()}
        profiles = [
            profile
            for profile in self._known.catalog.profiles
            if profile.task in parts and profile.variant in variants and profile.points
        ]
        here = {(one.task, one.variant) for one in profiles if one.device_kind in there}
        sizes = [
            one.points[-1].batch_size
            for one in profiles
            if one.device_kind in there or (one.task, one.variant) not in here
        ]
        return min(min(sizes, default=1), MAX_ROWS)


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": V2_NAMES[spec.dtype], "shape": [-1, *spec.shape]}


def _configured(spec: TensorSpec) -> dict[str, Any]:
    """Without the axis of rows, as a configuration with a ``max_batch_size`` has it."""
    kind = f"TYPE_{V2_NAMES[spec.dtype]}"
    return {"name": spec.name, "data_type": kind, "dims": list(spec.shape)}


def _duration(count: int, ns: float) -> dict[str, int]:
    return {"count": count, "ns": round(ns)}
