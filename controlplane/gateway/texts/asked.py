"""Which queries are asked with texts, and what they say of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planner.types import Query
from variants.buckets import BucketedTask, TaskTable, asked_name
from variants.checks.json_shape import shown
from variants.errors import InvalidInput, Overloaded
from variants.texts.inputs import TEXT
from variants.types import Task, TaskName

TRUNCATE = "truncate"
"""Whether longer texts are cut off: a field of ``/v1/query`` beside its inputs, and a parameter of
the Open Inference Protocol."""
MOST_CHARACTERS = 2**18
"""Of all texts of a query. They take some 0.1 s, and others wait meanwhile."""
CHARACTERS, AROUND = 5, 2
"""Of a token, as is usual, and tokens that stand around a text."""
BYTES = "BYTES"
"""The datatype of texts in the Open Inference Protocol."""


NOT_YET = "cannot be asked with texts yet: its tokenizer is being loaded"
"""What is said of versions whose tokenizer is not there yet."""


class TokenizerLoading(Overloaded):
    """The tokenizer that would read a text is not there yet."""


class AskedInText(InvalidInput):
    """The rows of a query are texts. They are read in a process of their own.

    It is caught where that process is at hand. Who does not catch it cannot take such a query.
    """

    def __init__(self, query: Callable[[], Query] | None = None) -> None:
        """
        Args:
            query: what is asked for, about: of texts that have as many tokens as is likely.
        """
        super().__init__("texts cannot be asked in this way")
        self.query = query


def likely_task(asked: Task | BucketedTask, texts: Sequence[Any]) -> Task:
    """The task that texts are likely to go to, before they are read."""
    if isinstance(asked, Task):
        return asked
    parts = [one if isinstance(one, list) else [one] for one in texts]
    longest = max((sum(len(one) for one in of if type(one) is str) for of in parts), default=0)
    return asked.holding(min(longest // CHARACTERS + AROUND, asked.lengths[-1]))


def check_numbers(task: Task, variant: str | None, tasks: Mapping[TaskName, Task]) -> None:
    """Refuse numbers of tokens where models of the task read different ones; none else.

    Args:
        variant: that the query names: its numbers are that one's then.

    Raises:
        InvalidInput: nobody can tell whose numbers they are.
    """
    if task.text is None or variant is not None or not isinstance(tasks, TaskTable):
        return
    if any(one.tokenizer != task.text.tokenizer for one in tasks.texts.get(task.name, ())):
        name = asked_name(task)
        what = f"the models of task {name!r} have different tokenizers"
        to_whom = "to each"
        if task.name in tasks.unread:
            what = f"no model of task {name!r} that is live has the task's own tokenizer"
            to_whom = "to others"
        raise InvalidInput(
            f"{what}, and numbers of tokens mean something else {to_whom}: ask with texts, or name"
            " the 'variant' whose numbers they are"
        )


def are_texts(inputs: Any) -> bool:
    """Whether the inputs of a body of ``/v1/query`` are texts: a list of them, or of pairs, or one
    alone, which is told how to be asked."""
    first = inputs[0] if type(inputs) is list and inputs else inputs
    if type(first) is list and first:
        first = first[0]
    return type(first) is str


def check_form(face: Task, inputs: Any) -> None:
    """Refuse inputs of a body of ``/v1/query`` that are neither texts nor named rows, of a task
    that takes both; others say themselves what is wrong.

    Args:
        face: the task, as clients see it.

    Raises:
        InvalidInput: they are.
    """
    names = [spec.name for spec in face.inputs]
    named = isinstance(inputs, dict)
    if inputs.keys() != set(names) if named else len(names) > 1:
        what = 'a list of texts, such as ["a text"]'
        if face.text is not None and face.text.pairs:
            what = 'a list of pairs of texts, such as [["a text", "another one"]]'
        raise InvalidInput(
            f"'inputs' of task {face.name!r} must be {what}, or an object with rows of numbers for"
            f" each of: {', '.join(names)}"
        )


def check_datatype(inputs: Sequence[Any]) -> None:
    """Refuse texts of the Open Inference Protocol that come with another datatype.

    Raises:
        InvalidInput: they do.
    """
    for entry in inputs:
        if isinstance(entry, Mapping) and entry.get("name") == TEXT:
            raise InvalidInput(
                f"input {TEXT!r} has the datatype {BYTES}, not {shown(entry.get('datatype'))}"
            )


def have_texts(inputs: Sequence[Any]) -> bool:
    """Whether inputs of the Open Inference Protocol are texts, as its JSON has them."""
    return any(isinstance(entry, Mapping) and entry.get("datatype") == BYTES for entry in inputs)
