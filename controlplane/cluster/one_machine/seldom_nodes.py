"""Serve's controller asks about nodes once a second: importing this module is what does it.

In each of its looks, four a second on one machine, it asked Ray's control store three things:
which nodes are alive, what they have free, and which are to go. There is one node, and without it
there is no controller. What is free Serve uses to choose among nodes.
"""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any

EVERY_S = 1.0


def seldom(update: Callable[[Any], None]) -> Callable[[Any], None]:
    """``ClusterNodeInfoCache.update``, which returns at once where it has asked just now. One that
    fails is called again with the next look."""

    def look(cache: Any) -> None:
        now_s = monotonic()
        if now_s >= getattr(cache, "_asks_again_s", -inf):
            update(cache)
            cache._asks_again_s = now_s + EVERY_S

    return look


with suppress(ImportError, AttributeError):  # without Ray, or with another one, all is as it was
    from ray.serve._private.cluster_node_info_cache import ClusterNodeInfoCache

    ClusterNodeInfoCache.update = seldom(ClusterNodeInfoCache.update)
