"""Tokenizers that tasks and versions name: which a catalog takes."""

from collections.abc import Collection, Iterable

from variants.buckets import own_texts_of, tasks_of_other_texts
from variants.errors import InvalidInput
from variants.texts.inputs import MOST_BYTES, check_pad, digest_of_text, names_of
from variants.types import Digest, ModelVersion, Registration, Task


def tokenizers_of(tasks: Iterable[Task], versions: Iterable[ModelVersion]) -> frozenset[Digest]:
    """The names of the tokenizers of tasks and of versions that have their own."""
    texts = (one.text for each in (tasks, versions) for one in each)
    return frozenset(text.tokenizer for text in texts if text is not None)


def tokenizers_read(tasks: Iterable[Task], versions: Collection[ModelVersion]) -> frozenset[Digest]:
    """Those of them by which texts are read: not of versions that may not answer, nor of tasks all
    versions of which have their own."""
    unread = tasks_of_other_texts(versions)
    own = {text.tokenizer for text in own_texts_of(versions).values()}
    return tokenizers_of((one for one in tasks if one.name not in unread), ()) | own


def check_version_text(version: ModelVersion, task: Task) -> None:
    """Refuse a tokenizer of a version's own that its task has no use for; none is fine.

    Raises:
        InvalidInput: the task takes no texts, or they go to other inputs, or it is the task's own.
    """
    text, of_task = version.text, task.text
    if text is None:
        return
    where = f"version {version.label!r} of task {task.name!r}"
    if of_task is None:
        raise InvalidInput(f"{where} has a tokenizer, and its task takes no texts")
    if text.way == of_task.way:
        raise InvalidInput(f"{where} names the tokenizer of its task as one of its own")
    if names_of(text) != names_of(of_task):
        raise InvalidInput(f"{where} has its texts in other inputs than its task")
    if text.packed_types and text.types is not None:
        raise InvalidInput(f"{where} has types of tokens in two inputs")
    check_pad(text, where)


def check_tokenizer(registration: Registration, *, new: bool, known: Collection[Digest]) -> None:
    """Refuse a registration without the tokenizers that it names, or with another one.

    Args:
        new: whether its task is.
        known: tokenizers that the catalog has.

    Raises:
        InvalidInput: it is so, or there is too much of it.
    """
    task, tokenizer = registration.task, registration.tokenizer
    named = tokenizers_of([task], [registration.version])
    needed = named if new else tokenizers_of([], [registration.version])
    _check(f"task {task.name!r}", tokenizer, named, needed, known)


def check_named(task: Task, tokenizer: bytes | None, *, known: Collection[Digest]) -> None:
    """The same of a task that is changed.

    Raises:
        InvalidInput: as ``check_tokenizer``.
    """
    named = tokenizers_of([task], [])
    _check(f"task {task.name!r}", tokenizer, named, named, known)


def _check(
    where: str,
    tokenizer: bytes | None,
    named: frozenset[Digest],
    needed: frozenset[Digest],
    known: Collection[Digest],
) -> None:
    given = None if tokenizer is None else digest_of_text(tokenizer)
    if given is not None and given not in named:
        raise InvalidInput(f"{where} comes with a tokenizer that it does not name")
    if needed - {given, *known}:
        raise InvalidInput(f"{where} names a tokenizer that is not there")
    if tokenizer is not None and len(tokenizer) > MOST_BYTES:
        raise InvalidInput(f"the tokenizer of {where} has more than {MOST_BYTES >> 20} MiB")
