"""Queries that name a variant which is there for other lengths than theirs."""

from collections.abc import Mapping

from planner.sentences import NAMED
from planner.types import Query, Snapshot
from variants.buckets import TaskTable, bucket_of
from variants.errors import InvalidInput
from variants.figures import some_of
from variants.types import Task, TaskName


def at_other_lengths(
    tasks: Mapping[TaskName, Task], snapshot: Snapshot, query: Query
) -> InvalidInput | None:
    """What to say of a variant that a query names and its length lacks; None where no length of the
    task has it, so that it is not there at all."""
    task = tasks.get(query.task)
    if task is None or task.bucket is None or not isinstance(tasks, TaskTable):
        return None
    views = snapshot.tasks
    there = [
        bucket
        for bucket in tasks.bucketed[task.bucket.of].buckets
        if bucket.name in views and query.variant in views[bucket.name].by_variant
    ]
    if not there:
        return None
    own = task.bucket.length
    lengths = [str(bucket_of(bucket).length) for bucket in there]
    plural = "s" if len(there) > 1 else ""
    longer = next((one for one in there if bucket_of(one).length > own), None)
    advice = "name another variant, or none"
    # Texts go where the tokenizer that makes most tokens of them holds them, if any does.
    several = any(tasks.texts.get(one.name) for one in tasks.bucketed[task.bucket.of].buckets)
    why_there = "the shortest that holds this query"
    if several:
        why_there += " by all tokenizers of the task that hold it"
    if longer is not None:
        filled = "" if task.text else f" with rows filled up to {bucket_of(longer).length}"
        advice += f", or ask task {longer.name!r}{filled}"
    elif several:
        advice += f", or ask task {there[-1].name!r}, which takes what is short enough for this one"
    return InvalidInput(
        f"variant {query.variant!r} is there for the length{plural} {some_of(lengths, NAMED)} of"
        f" task {task.bucket.of!r}, and not for {own}, {why_there}: {advice}"
    )
