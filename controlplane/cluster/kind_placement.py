"""Where the workers of a device kind run, and what is measured for it: only on nodes of that kind.

Ray 2.60 places by labels that nodes carry: those of ``ray start --labels``, or of a group of nodes.
"""

from typing import Any

from controlplane.slices import Kind


def options_for(kind: Kind) -> dict[str, Any]:
    """The options that bind an actor or a task of Ray to nodes of a kind; none where any will do.

    Added to those that say what it needs of a node, such as ``num_cpus``.
    """
    if kind.nodes is None:
        return {}
    return {"label_selector": {kind.nodes.label: f"in({','.join(kind.nodes.values)})"}}
