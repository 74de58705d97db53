"""Serve is told of no more workers than could start."""

from pathlib import Path

import pytest

from controlplane.controller.nodes.startable import AHEAD, BEYOND, startable
from controlplane.settings import Settings, load_settings
from variants.types import DeviceKindName

SMALL, LARGE, GPU, OTHER = map(DeviceKindName, ("cpu-1", "cpu-2", "fast", "elsewhere"))


def one_machine(tmp_path: Path, slices: str) -> Settings:
    return load_settings(state_dir=tmp_path, slices=slices)


@pytest.mark.parametrize("asked", [0, 1, 2, 11, 10_000])
def test_on_one_machine_it_is_little_more_than_its_cores_host(tmp_path: Path, asked: int) -> None:
    settings = one_machine(tmp_path, "2xcpu-1,1xcpu-2")  # four cores in all

    found = startable({SMALL: asked, LARGE: asked}, {}, settings)

    assert found == {SMALL: min(asked, 4 + BEYOND), LARGE: min(asked, 2 + BEYOND)}


def test_of_a_kind_that_is_not_of_this_machine_there_are_few(tmp_path: Path) -> None:
    settings = one_machine(tmp_path, "2xcpu-1")

    assert startable({OTHER: 7}, {}, settings) == {OTHER: 7}
    assert startable({OTHER: 7_000}, {}, settings) == {OTHER: BEYOND}


def test_a_gpu_has_one_worker(tmp_path: Path) -> None:
    settings = one_machine(tmp_path, "1xcpu-2,2xfast:gpu=NVIDIA H200:memory_mib=16000")

    assert startable({GPU: 99}, {}, settings) == {GPU: 2 + BEYOND}


def test_on_a_cluster_more_are_told_of_as_they_come(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, slices="2xcpu-1").model_copy(
        update={"ray_address": "127.0.0.1:6379"}
    )

    assert startable({SMALL: 500}, {}, settings) == {SMALL: 500}
    assert startable({SMALL: 9_999}, {}, settings) == {SMALL: AHEAD}
    assert startable({SMALL: 9_999}, {SMALL: 700}, settings) == {SMALL: AHEAD + 700}
