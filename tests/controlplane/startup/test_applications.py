"""The Serve applications of an installation: what is deployed, and what begins without a worker."""

from pathlib import Path

from controlplane.settings import load_settings
from controlplane.startup.applications import applications

PREFIX = "modelless-worker-"


def begun(state_dir: Path, slices: str, absent: tuple[str, ...] = ()) -> dict[str, int]:
    """How many workers of each kind Serve is to start."""
    settings = load_settings(state_dir=state_dir, slices=slices)
    return {
        name.removeprefix(PREFIX): made._bound_deployment.num_replicas
        for name, made in applications(settings, absent).items()
        if name.startswith(PREFIX)
    }


def test_of_layouts_the_first_one_begins(tmp_path: Path) -> None:
    assert begun(tmp_path, "1xcpu-2|2xcpu-1") == {"cpu-2": 1}
    assert begun(tmp_path, "1xcpu-2,2xcpu-1") == {"cpu-2": 1, "cpu-1": 2}


def test_a_kind_that_no_node_has_asks_ray_for_no_room(tmp_path: Path) -> None:
    assert begun(tmp_path, "1xcpu-2,0-2xcpu-1", ("cpu-1",)) == {"cpu-2": 1}
