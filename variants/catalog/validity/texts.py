"""Tokenizers that tasks name: which a catalog takes."""

from variants.errors import InvalidInput
from variants.texts.inputs import MOST_BYTES, digest_of_text
from variants.types import Task


def check_tokenizer(task: Task, tokenizer: bytes | None, *, known: bool) -> None:
    """Refuse a new task without the tokenizer that it names, or with another one.

    Args:
        known: whether the catalog has one of that name.

    Raises:
        InvalidInput: it is so, or there is too much of it.
    """
    where = f"task {task.name!r}"
    if tokenizer is None:
        if task.text is not None and not known:
            raise InvalidInput(f"{where} names a tokenizer that is not there")
        return
    if task.text is None or digest_of_text(tokenizer) != task.text.tokenizer:
        raise InvalidInput(f"{where} comes with a tokenizer that it does not name")
    if len(tokenizer) > MOST_BYTES:
        raise InvalidInput(f"the tokenizer of {where} has more than {MOST_BYTES >> 20} MiB")
