"""Names that are no settings, and more cores than there are."""

import os
from pathlib import Path
from typing import Any

import pytest

from controlplane.settings import known_names, load_settings
from controlplane.startup.settings_warnings import (
    broken_lines,
    followed_by_none,
    open_to_all_clients,
    oversights,
    part_of_a_core,
    too_few_files,
    too_little_memory,
    too_many_cores,
    too_much_memory,
    unknown_names,
)
from tests.planner.builders import task
from variants.types import Prefer, Slo


@pytest.fixture(autouse=True)
def _ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment of the tests sets is none of their business."""
    for name in os.environ:
        if name.startswith("MODELLESS_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MODELLESS_PROT", "did you mean MODELLESS_PORT?"),
        ("MODELLESS_WORKER", "did you mean MODELLESS_WORKERS?"),
        ("MODELLESS_TOKEN", "did you mean MODELLESS_API_TOKEN?"),
        ("MODELLESS_ALLOWED_HOST", "did you mean MODELLESS_ALLOWED_HOSTS?"),
        ("MODELLESS_REDIS", "did you mean MODELLESS_REDIS_URL?"),
        ("MODELLESS__PORT", "did you mean MODELLESS_PORT?"),
        ("modelless_objektive", "did you mean MODELLESS_OBJECTIVE?"),
        ("MODELLESS_ZZZZZZ", "remove it"),
    ],
)
def test_a_name_that_is_no_setting_is_told_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "1")
    settings = load_settings(state_dir=tmp_path)
    assert unknown_names(settings) == [(f"{name} in the environment is no setting", meant)]


def test_every_setting_is_known_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(state_dir=tmp_path)
    for name in known_names():
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("modelless_port", "8000")
    assert unknown_names(settings) == []


def test_all_names_of_the_file_have_to_be_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    file.write_text("# a comment\nPORT=8001\nmodelless_tick_s=2\nREDIS_URL=redis://h\nHOME=/x\n")
    assert unknown_names(load_settings(state_dir=tmp_path)) == [
        (f"HOME in {file} is no setting", "remove it"),
        (f"PORT in {file} is no setting", "did you mean MODELLESS_PORT?"),
    ]


def test_a_line_that_sets_nothing_is_told_without_what_it_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.env"
    file.write_text("MODELLESS_PORT=8005\nMODELLESS_API_TOKEN s3cret\n# why\nMODELLESS_HOST\n")

    told = broken_lines(file)

    assert load_settings(state_dir=tmp_path).port == 8005
    assert told == [
        (f"line {line} of {file} is not NAME=value and sets nothing", "correct it")
        for line in (2, 4)
    ]
    assert capfd.readouterr().err == ""


def test_without_a_file_no_line_is_broken(tmp_path: Path) -> None:
    assert broken_lines(tmp_path / "settings.env") == []


def test_more_cores_than_there_are(tmp_path: Path) -> None:
    def told(have: int, **settings: Any) -> list[str]:
        found = too_many_cores(load_settings(state_dir=tmp_path, **settings), have)
        return [one.what for one in found]

    slower = "workers share them, and are slower than their profiles say"
    assert told(4, cores=4, workers=2) == []
    assert told(4, cores=5) == [f"MODELLESS_CORES=5, and this machine has 4 cores: {slower}"]
    assert told(1, cores=1, workers=5) == [
        f"MODELLESS_WORKERS=5, and this machine has 1 core: {slower}"
    ]
    assert told(4, cores=64, workers=16, ray_address="auto") == []
    assert told(4, slices="2xcpu-1,cpu-2") == []
    assert told(3, slices="2xcpu-1,cpu-2") == [
        f"MODELLESS_SLICES=2xcpu-1,cpu-2 is 4 cores, and this machine has 3 cores: {slower}"
    ]


def test_more_memory_than_a_container_has(tmp_path: Path) -> None:
    def told(total_mib: float, **settings: Any) -> list[str]:
        found = too_much_memory(load_settings(state_dir=tmp_path, **settings), total_mib)
        return [one.what for one in found]

    killed = "where they do, the kernel ends workers"
    assert told(2000, cores=2, workers=2, worker_memory_mib=1000) == []
    assert told(1300, cores=2, workers=2, worker_memory_mib=3000) == [
        f"variants may take 6,000 MiB on the workers of this machine, which has 1,300 MiB: {killed}"
    ]
    assert told(1300, ray_address="auto", cores=2, workers=2, worker_memory_mib=3000) == []
    assert told(900, slices="1xcpu-1:memory_mib=400|2xcpu-1:memory_mib=400") == []


def test_a_container_that_modelless_alone_fills_is_told_of(tmp_path: Path) -> None:
    def told(total_mib: float, **settings: Any) -> list[str]:
        return list(
            map(str, too_little_memory(load_settings(state_dir=tmp_path, **settings), total_mib))
        )

    assert told(1_024) == told(640, ray_address="auto") == []
    assert told(640) == [
        "there are 640 MiB of memory for this machine or its container, and modelless takes some "
        "650 MiB with small models: the kernel will kill some of its processes; give it 2 GiB"
    ]


def test_fewer_files_than_connections_need(tmp_path: Path) -> None:
    def told(files: int, **settings: Any) -> list[str]:
        found = too_few_files(load_settings(state_dir=tmp_path, **settings), files)
        return [one.what for one in found]

    assert told(20_000) == told(-1) == told(256, ray_address="auto") == []
    assert told(256) == [
        "256 open files are allowed (ulimit -Hn), so each gateway takes at most 64 connections of"
        " HTTP and as many of gRPC"
    ]
    assert told(256, max_connections=64) == []


def test_each_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELLESS_PROT", "1")
    found = [str(one) for one in oversights(load_settings(state_dir=tmp_path, cores=100_000))]
    assert len(found) == 2
    assert not any("\n" in one for one in found)
    assert (
        found[0] == "MODELLESS_PROT in the environment is no setting; did you mean MODELLESS_PORT?"
    )


@pytest.mark.parametrize(("given", "warned"), [({}, 1), ({"ray_address": "auto"}, 0)])
def test_nodes_are_waited_for_on_a_cluster_only(
    tmp_path: Path, given: dict[str, Any], warned: int
) -> None:
    warnings = oversights(load_settings(state_dir=tmp_path, nodes=2, **given))

    assert [str(one) for one in warnings] == warned * [
        "MODELLESS_NODES=2 waits for nodes of a cluster, and MODELLESS_RAY_ADDRESS names none; "
        "set both or neither"
    ]


def test_of_layouts_only_the_largest_needs_cores(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, slices="1xcpu-2|2xcpu-1|3xcpu-1")
    assert too_many_cores(settings, cores=3) == []
    assert "is 3 cores, and this machine has 2 cores" in str(too_many_cores(settings, cores=2)[0])


def test_who_would_not_follow_the_plans_is_told(tmp_path: Path) -> None:
    tasks = [
        task("a"), task("b"), task("c"), task("d"),
        task("e", Slo(latency_ms=100.0, prefer=Prefer.ACCURACY)),
    ]  # fmt: skip
    cheap, accurate = (
        [str(one) for one in followed_by_none(load_settings(state_dir=tmp_path, **given), some)]
        for given, some in (({}, tasks[:4]), ({"objective": "accuracy"}, tasks))
    )
    assert cheap == []
    assert accurate == [
        "plans are for accuracy (MODELLESS_OBJECTIVE), and queries of a, b, c and 1 more that do "
        "not say what they prefer, prefer cost and do not follow them; send "
        '"prefer": "accuracy" in their SLO, or register tasks with `--prefer accuracy`'
    ]


def test_a_part_of_a_core_is_told(tmp_path: Path) -> None:
    """A worker counts with a whole core: that it had a quarter was shown nowhere."""
    settings = load_settings(state_dir=tmp_path)
    [found] = part_of_a_core(settings, 0.25)

    assert "leaves 0.25 of a core to all of modelless" in found.what
    assert part_of_a_core(settings, 1.0) == []


def test_a_proxy_in_front_of_a_gateway_without_a_token_is_told(tmp_path: Path) -> None:
    """On loopback no token is asked for, and the proxy's clients all come from there."""
    behind = load_settings(state_dir=tmp_path, behind_tls_proxy=True)
    [told] = open_to_all_clients(behind)
    assert told in oversights(behind)
    assert str(told) == (
        "MODELLESS_BEHIND_TLS_PROXY says that a proxy leads clients here, and no token is set: each"
        " of them may do what the operator may; set MODELLESS_API_TOKEN, and give clients keys of"
        " their own (`modelless keys add`)"
    )
    assert open_to_all_clients(load_settings(state_dir=tmp_path)) == []
    token = {"api_token": "a-token-of-some-length"}
    assert (
        open_to_all_clients(load_settings(state_dir=tmp_path, behind_tls_proxy=True, **token)) == []
    )
