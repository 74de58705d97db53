"""Waiting for the nodes of a cluster that are still to come, before kinds are made of them."""

import time
from collections.abc import Callable

MOST_S = 600.0
"""How long they are waited for: a new machine installs what it needs before it joins."""
LOOK_EVERY_S = 0.5


def await_nodes(
    expected: int,
    joined: Callable[[], int],
    tell: Callable[[str], None],
    *,
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> str:
    """Return when ``expected`` nodes have joined, or after ``MOST_S``.

    Returns a sentence for the operator where some are missing, else nothing.

    Args:
        joined: how many have joined by now.
        tell: told how many have joined whenever that has changed, until all have.

    Raises:
        ClusterUnavailable: Ray does not say which nodes there are.
    """
    until_s = now_s() + MOST_S
    told = None
    while (count := joined()) < expected:
        if now_s() >= until_s:
            return (
                f"{count} of {expected} nodes have joined within {MOST_S / 60:.0f} minutes "
                "(MODELLESS_NODES): the start goes on without the others"
            )
        if count != told:
            told = count
            tell(f"{count} of {expected} nodes have joined; waiting for the others")
        pause(LOOK_EVERY_S)
    return ""
