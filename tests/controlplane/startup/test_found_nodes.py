"""Settings with the kinds of a cluster: what `modelless up` goes by, and what it tells others."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.kind_placement import options_for
from controlplane.cluster.kinds.node import KIND_LABEL, NODE_LABEL, Node
from controlplane.gpus import GpuModel
from controlplane.settings import Settings, load_settings
from controlplane.startup.found_nodes import out_of_reach, with_kinds_of
from variants.errors import InvalidInput

GPU = GpuModel(name="NVIDIA H200", count=1, memory_mib=143_771)


@pytest.fixture(autouse=True)
def _ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLICES", "WORKERS", "CORES", "GPUS"):
        # Set first, so that what is tested is taken back.
        monkeypatch.setenv(f"MODELLESS_{name}", "")
        monkeypatch.delenv(f"MODELLESS_{name}")


def settings(tmp_path: Path, **given: Any) -> Settings:
    return load_settings(state_dir=tmp_path, ray_address="auto", **given)


def node(
    name: str,
    instructions: str = "avx2",
    gpus: tuple[GpuModel, ...] = (),
    labels: dict[str, str] | None = None,
) -> Node:
    return Node(
        id=name,
        name=name,
        cores=4 + len(gpus),
        labels={NODE_LABEL: name, **(labels or {})},
        instructions=instructions,
        memory_mib=8_000,
        gpus=gpus,
    )


def kinds(found: Settings) -> list[tuple[str, int, float, str | None]]:
    return [(one.name, one.most, one.memory_mib, one.gpu) for one in found.kinds]


def test_the_kinds_that_were_found_are_those_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "settings.env").write_text("MODELLESS_WORKERS=2\n")
    nodes = [node("a"), node("b", "amx")]

    found = with_kinds_of(nodes, settings(tmp_path))

    assert kinds(found.settings) == [
        ("cpu-4-avx2", 1, 4_000.0, None),
        ("cpu-4-amx", 1, 4_000.0, None),
    ]
    assert [options_for(kind) for kind in found.settings.kinds] == [
        {"label_selector": {NODE_LABEL: "in(a)"}},
        {"label_selector": {NODE_LABEL: "in(b)"}},
    ]
    assert found.words == "2 with 8 cores: 1x cpu-4-avx2 (a), 1x cpu-4-amx (b)"
    assert found.remarks == ()
    # What makes the applications reads the environment, and the file of before.
    assert settings(tmp_path).kinds == found.settings.kinds
    # Replicas are told it once more.
    assert found.settings.resolved().kinds == found.settings.kinds


def test_nodes_that_are_alike_leave_what_is_set(tmp_path: Path) -> None:
    given = settings(tmp_path, workers=2, cores=4)

    found = with_kinds_of([node("a"), node("b")], given)

    assert found.settings == given
    assert found.words == "2 with 8 cores, alike: cpu-2"
    assert "MODELLESS_SLICES" not in os.environ
    assert with_kinds_of([], given).words.startswith("none has joined yet")


def test_memory_that_is_set_is_that_of_all_workers(tmp_path: Path) -> None:
    given = settings(tmp_path, worker_memory_mib=512)

    found = with_kinds_of([node("a", gpus=(GPU,))], given)

    assert kinds(found.settings) == [
        ("cpu-4", 1, 512, None),
        ("nvidia-h200", 1, GPU.usable_mib, "NVIDIA H200"),
    ]
    assert found.settings.all_gpus == 1


def test_what_is_set_is_bound_and_the_rest_is_told(tmp_path: Path) -> None:
    given = settings(tmp_path, slices="2xcpu-1-fast")
    nodes = [node("a", labels={KIND_LABEL: "cpu-1-fast"}), node("b")]

    found = with_kinds_of(nodes, given)

    assert found.words == "2 with 8 cores: 2x cpu-1-fast (a)"
    (advice,) = found.remarks
    assert advice.startswith("nodes offer kinds that no workers use: cpu-4 (b);")


def test_a_kind_whose_memory_is_not_known_is_told(tmp_path: Path) -> None:
    silent = replace(node("a"), instructions=None, memory_mib=0)

    told = with_kinds_of([silent], settings(tmp_path)).remarks
    assert told[-1].startswith("no node of cpu-4 said in time what memory it has")


def test_memory_that_is_set_need_not_be_known(tmp_path: Path) -> None:
    silent = replace(node("a"), instructions=None, memory_mib=0)

    told = with_kinds_of([silent], settings(tmp_path, worker_memory_mib=512)).remarks
    assert not [one for one in told if "memory" in one]


def test_nodes_of_too_many_kinds_are_refused_in_words(tmp_path: Path) -> None:
    nodes = [node(f"n{i}", labels={KIND_LABEL: f"sort-{i}"}) for i in range(33)]

    with pytest.raises(InvalidInput, match="there are 33 device kinds, and at most 32 may be"):
        with_kinds_of(nodes, settings(tmp_path))
    assert "MODELLESS_SLICES" not in os.environ


def test_a_kind_of_which_there_may_be_none_is_not_missed_and_not_started(tmp_path: Path) -> None:
    slices = "1xcpu-4,0-2xcpu-4-spot:nodes=rack=7,1-2xcpu-4-new:nodes=rack=8"
    found = with_kinds_of([node("a")], settings(tmp_path, slices=slices))

    assert found.absent == {"cpu-4-spot"}
    assert [said for said in found.remarks if "cpu-4-spot" in said] == []
    assert "no node can have a worker of cpu-4-new, and 1 is wanted" in found.remarks
    here = node("b", labels={"rack": "7"})
    assert with_kinds_of([node("a"), here], settings(tmp_path, slices=slices)).absent == frozenset()


def test_workers_that_no_gateway_reaches_are_told(tmp_path: Path) -> None:
    two = [node("a"), node("b")]
    assert out_of_reach(two, settings(tmp_path)) == (
        "MODELLESS_LISTEN_CHANNEL is 'unix', by which a gateway reaches workers of its own machine"
        " alone, and there are 2 machines: set it to tcp:0.0.0.0"
    )
    assert out_of_reach(two, settings(tmp_path, listen_channel="tcp:0.0.0.0")) == ""
    assert out_of_reach([node("a"), node("a")], settings(tmp_path)) == ""
