"""Options that belong together are declared once, as the fields of a dataclass."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer is to see it: in place of a parameter whose type is a dataclass, that
    one's fields, each an option, in their order."""
    seen = inspect.signature(command)
    options: list[inspect.Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}
    for one in seen.parameters.values():
        group = one.annotation
        if isinstance(group, type) and is_dataclass(group):
            fields = inspect.signature(group).parameters
            groups[one.name] = (group, tuple(fields))
            options += fields.values()
        else:
            options.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def called(**given: Any) -> None:
        for name, (group, fields) in groups.items():
            given[name] = group(**{field: given.pop(field) for field in fields})
        command(**given)

    # Typer reads this one, and what the names in its annotations mean where the command is.
    called.__signature__ = seen.replace(parameters=options)  # type: ignore[attr-defined]
    return called
