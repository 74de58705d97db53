"""The Serve applications of an installation: what is deployed, and what begins without a worker."""

from pathlib import Path

from controlplane.settings import load_settings
from controlplane.startup.applications import applications


def begun(state_dir: Path, slices: str, absent: tuple[str, ...] = ()) -> tuple[set[str], list[str]]:
    settings = load_settings(state_dir=state_dir, slices=slices)
    made, empty = applications(settings, absent)
    return {name for name in made if name.startswith("modelless-worker-")}, empty


def test_of_layouts_all_kinds_are_deployed_and_the_first_one_begins(tmp_path: Path) -> None:
    one, two = "modelless-worker-cpu-1", "modelless-worker-cpu-2"
    assert begun(tmp_path, "1xcpu-2|2xcpu-1") == ({one, two}, [one])
    assert begun(tmp_path, "1xcpu-2,2xcpu-1") == ({one, two}, [])
    assert begun(tmp_path, "1xcpu-2,2xcpu-1", ("cpu-1",)) == ({one, two}, [one])
