"""The policies by name. Adding one is one file and one line here."""

from collections.abc import Callable
from importlib import import_module

from planner.policies.policy import Factory

POLICIES = {
    "modelless": "planner.policies.modelless",
    "infaas": "planner.policies.infaas",
    "proteus": "planner.policies.proteus",
    "clipper": "planner.policies.static:clipper",
    "clipper-cheapest": "planner.policies.static:clipper_cheapest",
    "static-best": "planner.policies.static:best",
    "static-cheapest": "planner.policies.static:cheapest",
}
"""Name to ``module`` or ``module:function``; the function is ``make`` where none is named."""


def make(name: str) -> Factory:
    """The factory of a policy.

    Raises:
        ValueError: there is no such policy.
    """
    where = POLICIES.get(name)
    if where is None:
        known = ", ".join(POLICIES)
        raise ValueError(f"policy {name!r} is unknown; there are: {known}")
    module, _, function = where.partition(":")
    factory: Callable[..., object] = getattr(import_module(module), function or "make")
    return factory  # type: ignore[return-value]
