"""The eviction rules by name. Adding one is one function and one line here."""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from planner.eviction.rules import Resident
from variants.registry import Entry, load

Rule = Callable[[Resident[Any]], float]
"""What a resident is worth keeping."""

RULES: dict[str, Entry] = {
    "modelless": Entry(
        target="planner.eviction.rules:modelless",
        about="expected queries x (load time + queries refused) / memory",
    ),
    "lru": Entry(target="planner.eviction.rules:lru", about="least recently used"),
    "lfu": Entry(target="planner.eviction.rules:lfu", about="least frequently used"),
    "gdsf": Entry(
        target="planner.eviction.rules:gdsf",
        about="GreedyDual-Size with Frequency",
    ),
}


@cache
def rule_named(name: str) -> Rule:
    """The rule of this name.

    Raises:
        InvalidInput: there is no such rule.
    """
    return cast(Rule, load("eviction rule", name, RULES))
