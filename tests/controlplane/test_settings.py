"""Settings: where they come from, and one sentence for each that is wrong."""

from pathlib import Path

import numpy as np
import pytest

from controlplane.gateway.query.v2.datatypes import V2_NAMES, listed_type, width_of
from controlplane.gpus import GpuModel
from controlplane.settings import LOOK_S, load_settings
from variants.errors import InvalidInput
from variants.types import DeviceKindName


def test_an_override_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.env").write_text(
        "MODELLESS_PORT=8001\nMODELLESS_TICK_S=2\nMODELLESS_WORKERS=3\n"
    )
    monkeypatch.setenv("MODELLESS_PORT", "8002")
    monkeypatch.setenv("MODELLESS_TICK_S", "3")

    settings = load_settings(state_dir=tmp_path, port=8003)

    assert (settings.port, settings.tick_s, settings.workers) == (8003, 3.0, 3)


def test_a_relative_state_directory_means_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert load_settings(state_dir="state").state_dir == tmp_path / "state"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("MODELLESS_PORT=eight", "setting MODELLESS_PORT: it must be a whole number"),
        ("MODELLESS_PORT=0", "setting MODELLESS_PORT: it must be at least 1"),
        ("MODELLESS_LOG_LEVEL=LOUD", "setting MODELLESS_LOG_LEVEL: it must be one of CRITICAL, "),
        (
            "MODELLESS_BATCHING=always",
            "setting MODELLESS_BATCHING: it must be one of profile,",
        ),
        ("MODELLESS_LISTEN_CHANNEL=tcp:", "setting MODELLESS_LISTEN_CHANNEL: it must be 'unix' or"),
        ("MODELLESS_GATEWAY_NODES=CPU", "setting MODELLESS_GATEWAY_NODES: it must be 'head' or"),
        ("MODELLESS_CARBON_G_PER_KWH=much", "setting MODELLESS_CARBON_G_PER_KWH: it must be one"),
        ("MODELLESS_CARBON_G_PER_KWH=1 2", "setting MODELLESS_CARBON_G_PER_KWH: it must be one"),
        (
            "MODELLESS_ALLOWED_HOSTS=a.example,https://b.example",
            "setting MODELLESS_ALLOWED_HOSTS: 'https://b.example' is no host name",
        ),
        ("MODELLESS_REDIS_URL=localhost", "setting MODELLESS_REDIS_URL: it must start with redis:"),
        ("MODELLESS_REDIS_URL=redis://h:x", "setting MODELLESS_REDIS_URL: it must be a URL, and"),
        ("MODELLESS_REDIS_URL=redis://[h", "setting MODELLESS_REDIS_URL: it must be a URL, and"),
        ("MODELLESS_TRACES_URL=localhost", "setting MODELLESS_TRACES_URL: it must be an address"),
        ("MODELLESS_TRACES_URL=http://h:x", "setting MODELLESS_TRACES_URL: it must be a URL, and"),
        (
            "MODELLESS_TRACES_URL=http://me:key@h/v1/traces",
            "setting MODELLESS_TRACES_URL: it must be without a user and a password: put a key",
        ),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "settings.env").write_text(line)

    with pytest.raises(InvalidInput) as refused:
        load_settings(state_dir=tmp_path)

    assert refused.value.message.startswith(sentence)


def test_a_settings_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "settings.env").write_bytes(b"MODELLESS_PORT=\xff\n")

    with pytest.raises(InvalidInput, match=r"settings\.env cannot be read: it is not UTF-8$"):
        load_settings(state_dir=tmp_path)


@pytest.mark.parametrize(
    ("given", "gateways"),
    [({}, 1), ({"ray_address": "auto"}, 2), ({"ray_address": "auto", "gateways": 1}, 1)],
)
def test_a_cluster_has_two_gateways_unless_told_otherwise(
    tmp_path: Path, given: dict[str, object], gateways: int
) -> None:
    settings = load_settings(state_dir=tmp_path, **given)

    assert settings.gateway_count == settings.resolved().gateway_count == gateways


def test_resolving_twice_changes_nothing(tmp_path: Path) -> None:
    once = load_settings(state_dir=tmp_path, workers=3, cores=8).resolved()

    assert once.resolved() == once
    assert (once.cores, once.kinds[0].name) == (6, "cpu-2")


@pytest.mark.parametrize(
    ("cores", "workers", "each"),
    [(1, 1, 1), (4, 1, 4), (7, 1, 7), (8, 2, 4), (11, 2, 5), (16, 4, 4), (64, 8, 8), (96, 8, 12)],
)
def test_a_machine_of_many_cores_has_several_workers_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, workers: int, each: int
) -> None:
    monkeypatch.setattr("controlplane.settings.usable_cores", lambda: cores)
    for given in ({}, {"cores": cores}):
        settings = load_settings(state_dir=tmp_path, **given)
        for told in (settings, settings.resolved()):
            [kind] = told.kinds
            assert (kind.name, kind.cores, kind.most) == (f"cpu-{each}", each, workers)

    [whole] = load_settings(state_dir=tmp_path, workers=1).kinds
    assert (whole.name, whole.most) == (f"cpu-{cores}", 1)
    [of_a_cluster] = load_settings(state_dir=tmp_path, cores=cores, ray_address="auto").kinds
    assert (of_a_cluster.name, of_a_cluster.most) == (f"cpu-{cores}", 1)


def test_kinds_are_made_once_though_they_are_asked_for_many_times_a_second(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, slices="2xcpu-1")
    assert settings.kinds is settings.kinds


def test_a_machine_may_have_several_kinds(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, slices="2xcpu-1,0-3xcpu-2:usd_per_hour=0.5")

    assert [(k.name, k.most, k.usd_per_hour) for k in settings.kinds] == [
        ("cpu-1", 2, 0.04),
        ("cpu-2", 3, 0.5),
    ]
    assert (settings.all_cores, settings.sliced_by) == (8, "MODELLESS_SLICES")
    asked = settings.wanted({DeviceKindName("cpu-1"): 4, DeviceKindName("x"): 1})
    assert asked == {"cpu-1": 4, "cpu-2": 3, "x": 1}
    assert settings.least(asked) == {"cpu-1": 4, "cpu-2": 0, "x": 1}
    assert settings.planning.elastic


def test_slices_are_spelled_out_once(tmp_path: Path) -> None:
    once = load_settings(state_dir=tmp_path, slices="2xcpu-1,cpu-2", elastic=True).resolved()

    assert once.resolved() == once
    assert "memory_mib=" in once.slices
    assert once.cores == 0


H200 = GpuModel(name="NVIDIA H200", count=2, memory_mib=143_771)


@pytest.mark.parametrize(
    ("given", "gpus"),
    [({}, 2), ({"gpus": 1}, 1), ({"gpus": 0}, 0), ({"ray_address": "10.0.0.1:6379"}, 0),
     ({"ray_address": "10.0.0.1:6379", "gpus": 2}, 2)],
)  # fmt: skip
def test_each_gpu_of_this_machine_has_a_worker_and_none_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, object], gpus: int
) -> None:
    monkeypatch.setattr("controlplane.settings.machine_gpus", lambda: (H200,))
    settings = load_settings(state_dir=tmp_path, cores=4, **given)

    assert [kind.name for kind in settings.kinds] == ["cpu-4", *["nvidia-h200"] * bool(gpus)]
    assert (settings.all_gpus, settings.all_cores) == (gpus, 4 + gpus)


def test_limits_of_a_container_are_read_once_in_a_while_and_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, asked = [1e9], []
    monkeypatch.setattr("controlplane.settings.monotonic", lambda: now_s[0])
    monkeypatch.setattr("controlplane.settings.usable_cores", lambda: 4)

    def total_mib() -> float:
        asked.append(now_s[0])
        return 8_192.0 if len(asked) == 1 else 4_096.0

    monkeypatch.setattr("controlplane.settings.total_memory_mib", total_mib)
    settings = load_settings(state_dir=tmp_path)

    assert [settings.kinds[0].memory_mib for _ in range(50)] == [4_096.0] * 50
    assert len(asked) == 1
    now_s[0] += LOOK_S
    assert settings.kinds[0].memory_mib == 2_048.0


def test_what_gpus_there_are_is_spelled_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.settings.machine_gpus", lambda: (H200,))
    told = load_settings(state_dir=tmp_path, cores=4)
    kinds, once = told.kinds, told.resolved()
    monkeypatch.setattr("controlplane.settings.machine_gpus", tuple)  # elsewhere

    assert once.kinds == kinds
    assert once.resolved() == once


def test_elastic_is_a_property_of_the_one_kind(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, workers=3, cores=3, elastic=True)

    assert settings.least(settings.wanted({})) == {"cpu-1": 1}
    assert not load_settings(state_dir=tmp_path, workers=3).planning.elastic


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slices": "2xgpu"}, r"setting MODELLESS_SLICES: gpu does not say how many cores it has"),
        ({"slices": "cpu-1", "workers": 2}, "MODELLESS_SLICES and MODELLESS_WORKERS are both set"),
        ({"slices": "cpu-1", "cores": 2}, "MODELLESS_SLICES and MODELLESS_CORES are both set"),
        ({"slices": "cpu-1:nodes=rack=7"}, "binds cpu-1 to nodes of a cluster, and MODELLESS_RAY"),
    ],
)
def test_slices_that_cannot_be_are_refused(
    tmp_path: Path, given: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_settings(state_dir=tmp_path, **given)


@pytest.mark.parametrize(("given", "port"), [("", 0), ("0", 0), ("9001", 9001)])
def test_no_port_means_no_grpc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, port: int
) -> None:
    monkeypatch.setenv("MODELLESS_GRPC_PORT", given)

    assert load_settings(state_dir=tmp_path).grpc_port == port


def test_http_and_grpc_need_a_port_each(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="MODELLESS_GRPC_PORT and MODELLESS_PORT are both 8001"):
        load_settings(state_dir=tmp_path, port=8001)


@pytest.mark.parametrize(
    ("others", "spare"),
    [
        ({"cores": 4}, 4),
        ({"cores": 4, "workers": 2}, 2),
        ({"slices": "2xcpu-1,1xcpu-3"}, 3),
        ({"slices": "1-2xcpu-2,1xcpu-1"}, 2),
        ({"slices": "1xcpu-2|2xcpu-1"}, 0),
        ({"cores": 4, "elastic": True}, 4),
        ({"cores": 4, "ray_address": "auto"}, 0),
    ],
)
def test_one_more_of_the_largest_kind_may_run_while_others_are_replaced(
    tmp_path: Path, others: dict[str, object], spare: int
) -> None:
    """Of layouts plans choose one as a whole, and a cluster's nodes are its owner's."""
    assert load_settings(state_dir=tmp_path, **others).spare_cores == spare


def test_layouts_have_the_kinds_of_all_and_share_the_memory_as_if_all_ran(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, slices="1xcpu-2|2xcpu-1")

    assert settings.layouts == ({"cpu-2": 1}, {"cpu-1": 2})
    assert settings.begins_with == {"cpu-2": 1, "cpu-1": 0}
    assert settings.all_cores == 4  # of Ray's: those that come start beside those that go
    assert settings.plans_decide
    two, one = settings.kinds
    assert two.memory_mib == 2 * one.memory_mib
    once = settings.resolved()
    assert (once.layouts, once.kinds) == (settings.layouts, settings.kinds)
    assert once.resolved() == once


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({"elastic": True}, "MODELLESS_ELASTIC"),
        ({"ray_address": "auto"}, "MODELLESS_RAY_ADDRESS names a cluster"),
    ],
)
def test_layouts_are_of_one_machine_and_say_how_many(
    tmp_path: Path, others: dict[str, object], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        load_settings(state_dir=tmp_path, slices="1xcpu-2|2xcpu-1", **others)


def test_no_body_that_is_taken_becomes_a_frame_that_is_not(tmp_path: Path) -> None:
    """A frame that is too large would end the connection for all other queries on it."""
    widest = max(
        np.dtype(expected).itemsize / width_of(given)
        for expected in ("bool", "uint8", "int32", "int64", "float32", "float64")
        for given in (*V2_NAMES.values(), "BF16")
        if listed_type(given, expected) is not None
    )
    assert widest == 8
    for most_mib in (1, 16, 100):
        settings = load_settings(state_dir=tmp_path, max_body_mib=most_mib)
        assert settings.max_frame_mib > widest * most_mib


def test_a_token_is_one_that_a_header_can_carry(tmp_path: Path) -> None:
    assert load_settings(state_dir=tmp_path, api_token="open sesame\n").api_token == "open sesame"
    with pytest.raises(InvalidInput, match="MODELLESS_API_TOKEN: a header carries") as refused:
        load_settings(state_dir=tmp_path, api_token="open sésame")
    assert "sésame" not in refused.value.message
