"""Spare room: cores of Ray that are kept for one more worker, while others are replaced.

Workers have all cores of a machine, so that none of them could be started beside the one that it
follows. Ray is told of some cores more, and a placement group holds these, so that no worker that
is asked for beyond what fits takes them. The control loop gives them up while `modelless upgrade`
has one more worker run: the two share the machine's cores for as long as one of them loads.
"""

from typing import Any

from variants.errors import ClusterUnavailable

NAME = "modelless-spare-room"


def keep(cores: int, given: int) -> None:
    """Keep so many cores, unless some are kept already.

    It may take until a worker has left. Nothing is kept where Ray has no cores to spare, as one
    that an earlier release has started.

    Args:
        given: what workers may have in all.

    Raises:
        ClusterUnavailable: Ray does not answer.
    """
    import ray
    from ray.util import placement_group

    if cores < 1:
        return
    try:
        if not _found() and ray.cluster_resources().get("CPU", 0.0) >= given + cores:
            placement_group([{"CPU": float(cores)}], name=NAME, lifetime="detached")
    except Exception as error:
        raise ClusterUnavailable(f"Ray keeps no room for one more worker: {error}") from error


def give_up() -> None:
    """Let a worker have what is kept.

    Raises:
        ClusterUnavailable: Ray does not answer.
    """
    from ray.util import remove_placement_group
    from ray.util.placement_group import get_placement_group

    try:
        if _found():
            remove_placement_group(get_placement_group(NAME))
    except Exception as error:
        raise ClusterUnavailable(f"Ray gives up no room for one more worker: {error}") from error


def kept_cores() -> int:
    """How many cores are kept now.

    Raises:
        ClusterUnavailable: Ray does not answer.
    """
    try:
        return sum(
            int(bundle.get("CPU", 0.0))
            for one in _found()
            if one["state"] == "CREATED"
            for bundle in one["bundles"].values()
        )
    except Exception as error:
        raise ClusterUnavailable(f"Ray does not say what room it keeps: {error}") from error


def _found() -> list[dict[str, Any]]:
    from ray.util import placement_group_table

    table: dict[str, dict[str, Any]] = placement_group_table()
    return [one for one in table.values() if one["name"] == NAME and one["state"] != "REMOVED"]
