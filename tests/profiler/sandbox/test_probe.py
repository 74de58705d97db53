"""Variants measured in children of their own: the real ONNX Runtime, and echoes of known cost."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from onnx import TensorProto

from profiler.hardware_counters import DeviceMemory, PowerMeter, Reading
from profiler.sandbox.enough import CALM
from profiler.sandbox.limits import MeasureLimits
from profiler.sandbox.measure import Trial
from profiler.sandbox.probe import Probe, TooMuch, cores_for, settle
from tests import onnx_models as models
from variants.errors import InvalidArtifact
from variants.types import Digest, TaskName, TensorSpec, VariantName
from workers.types import LoadSpec

pytestmark = pytest.mark.slow

QUICK = MeasureLimits(batch_sizes=(1, 4), point_s=0.012, min_runs=4, rounds=3)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rows 1 0 0 0, 0 1 0 0, 0 0 1 0, 0 0 0 1, and once more; the last of four is labelled 1."""
    path = tmp_path / "rows.npz"
    rows = np.tile(np.eye(4, dtype=np.float32), (2, 1))
    np.savez(path, pixels=rows, labels=np.array([0, 1, 2, 1] * 2))
    return path


def spec(path: Path, runtime: str = "onnx", **options: str) -> LoadSpec:
    """The tiny model, or an echo that gives the first three of four numbers back."""
    if runtime == "echo":
        path.write_bytes(bytes(2**20))
    return LoadSpec(
        task=TaskName("tiny"),
        variant=VariantName(f"tiny-v1-{runtime}"),
        runtime=runtime,
        artifact=Digest("0" * 64),
        path=str(path),
        inputs=(TensorSpec(name="pixels", dtype="float32", shape=(4,)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(3,)),),
        latency=(),
        memory_mib=0.0,
        load_s=0.0,
        options=tuple(options.items()),
    )


def probe(what: LoadSpec, data: Path, limits: MeasureLimits = QUICK, time_s: float = 30) -> Probe:
    return Probe(what, threads=1, data=data, limits=limits, memory_mib=1_000, time_s=time_s)


@pytest.fixture
def no_process_stays() -> Iterator[None]:
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before


def test_a_model_is_loaded_run_and_judged(tmp_path: Path, data: Path) -> None:
    path = models.write(tmp_path / "tiny.onnx")
    with probe(spec(path), data) as one:
        curve = one.curve()
        figures, judgement = one.figures, one.judge()
    assert [point.batch_size for point in curve] == [1, 4]
    assert all(0 < point.p50_ms <= point.p95_ms <= point.p99_ms for point in curve)
    assert (judgement.accuracy, judgement.rows, judgement.agreement) == (0.75, 8, None)
    assert figures.load_s > 0
    assert figures.cold_load_s > 0.01  # the import of ONNX Runtime is in it
    assert 0 < figures.memory_mib < 500
    assert figures.host_memory_mib is None  # on a CPU there is only the one


def test_what_would_make_the_model_itself_better_is_said(tmp_path: Path, data: Path) -> None:
    """Its labels are in another order than its scores; of what is compared with it nothing is
    said."""
    rows = np.tile(np.eye(4, dtype=np.float32)[:3], (20, 1))
    np.savez(data, pixels=rows, labels=np.array([1, 2, 0] * 20))
    scores = tmp_path / "scores.npy"
    with probe(spec(tmp_path / "e", "echo"), data) as one:
        found = one.judge(keep=scores, classes=("a", "b", "c"))
        compared = one.judge(reference=scores, classes=("a", "b", "c"))
    assert (found.accuracy, compared.suspicion) == (0.0, "")
    assert found.suspicion.startswith(
        "it would be right in 100.00 % of the rows, not in 0.00 %, if its classes had another"
        " order: 'a' is answered 'c', 'b' is answered 'a', 'c' is answered 'b';"
    )


def test_an_echo_costs_what_it_is_told(tmp_path: Path, data: Path) -> None:
    echo = spec(tmp_path / "e", "echo", latency_ms="1", latency_ms_per_row="1", load_s="0.02")
    with probe(echo, data) as one:
        first, fourth = one.curve()
        figures = one.figures
    # By the clock it takes no less; time in which others had the processor is taken off.
    assert 0.9 * 2.0 <= first.p50_ms <= first.p95_ms <= first.p99_ms
    assert 0.9 * 5.0 <= fourth.p50_ms <= fourth.p95_ms <= fourth.p99_ms
    assert figures.load_s >= 0.02
    assert figures.cold_load_s >= 0.02
    assert figures.memory_mib >= 1.0  # no less than its file
    assert QUICK.rounds <= len(one.samples[1].rounds) <= CALM * QUICK.rounds


def test_turns_of_a_batch_size_are_kept_together(tmp_path: Path, data: Path) -> None:
    with probe(spec(tmp_path / "e", "echo"), data) as one:
        first = one.sample(1, seconds=0.001)
        other = one.sample(4, seconds=0.001)
        second = one.sample(1, seconds=0.001)
    assert (len(first.rounds), len(other.rounds), len(second.rounds)) == (1, 1, 2)
    assert second.rounds[:1] == first.rounds
    assert second.runs > first.runs
    assert one.samples == {1: second, 4: other}


def test_a_probe_may_be_entered_again(tmp_path: Path, data: Path) -> None:
    one = probe(spec(tmp_path / "e", "echo"), data)
    with pytest.raises(InvalidArtifact, match="was not loaded"):
        _ = one.figures
    with one:
        first, memory_mib = one.sample(1), one.figures.memory_mib
    with pytest.raises(InvalidArtifact, match="its trial process has ended"):
        one.sample(1)
    with one:
        second = one.sample(1)
    assert second.rounds[:1] == first.rounds
    assert len(second.rounds) == 2
    assert one.figures.memory_mib >= memory_mib


def test_a_batch_that_is_too_slow_ends_the_curve(tmp_path: Path, data: Path) -> None:
    limits = MeasureLimits(
        batch_sizes=(1, 2, 8, 16), point_s=0.01, min_runs=4, slowest_batch_s=0.07
    )
    with probe(spec(tmp_path / "e", "echo", latency_ms_per_row="10"), data, limits) as one:
        assert [point.batch_size for point in one.curve()] == [1, 2]
        assert one.samples[8].runs == 1
        assert 16 not in one.samples


@pytest.mark.parametrize(
    ("options", "sizes"),
    [({"latency_ms": "9"}, [1, 2, 4, 8]), ({"latency_ms_per_row": "9"}, [1, 2, 4])],
)
def test_batches_grow_only_while_it_is_of_use(
    options: dict[str, str], sizes: list[int], tmp_path: Path, data: Path
) -> None:
    limits = MeasureLimits(
        batch_sizes=(1, 2, 4, 8), useful_above=4, useful_gain=0.5, point_s=0.01, min_runs=4
    )
    with probe(spec(tmp_path / "e", "echo", **options), data, limits) as one:
        assert [point.batch_size for point in one.curve()] == sizes


def test_agreement_is_with_what_a_reference_answered(tmp_path: Path, data: Path) -> None:
    """The other one takes the first value for the second, so it differs on 2 of 8 rows."""
    kept = tmp_path / "scores.npy"
    path = models.write(tmp_path / "tiny.onnx")
    with probe(spec(path), data) as reference:
        reference.judge(keep=kept)
    weight = models.WEIGHT.copy()
    weight[0] = weight[1]
    other = models.write(tmp_path / "other.onnx", models.model(weights={"weight": weight}))
    with probe(spec(other), data) as one:
        found = one.judge(reference=kept)
    assert (found.accuracy, found.rows, found.agreement) == (0.5, 8, 0.75)


@pytest.mark.usefixtures("no_process_stays")
def test_a_crash_ends_one_probe_and_no_other(tmp_path: Path, data: Path) -> None:
    crashing = spec(tmp_path / "c", "echo", crash_value="1")
    with probe(crashing, data) as broken, probe(spec(tmp_path / "e", "echo"), data) as sound:
        failures = settle([(broken, 1), (sound, 1), (broken, 4), (sound, 4)])
        assert {one: error.message for one, error in failures.items()} == {
            broken: "tiny-v1-echo: it crashed its trial process (SIGABRT)"
        }
        assert sound.settled(1)
        assert sound.settled(4)
        with pytest.raises(InvalidArtifact, match="its trial process has ended"):
            broken.sample(1)


@pytest.mark.usefixtures("no_process_stays")
def test_a_variant_that_fails_is_refused_and_so_is_one_that_cannot_be_loaded(
    tmp_path: Path, data: Path
) -> None:
    with probe(spec(tmp_path / "e", "echo", fail_value="1"), data) as one:
        with pytest.raises(InvalidArtifact, match="met 1, on which it is to fail"):
            one.curve()
        assert psutil.pid_exists(one.pid)  # it can be asked for something else
    wrong = probe(spec(tmp_path / "missing.onnx"), data)
    with pytest.raises(InvalidArtifact, match="cannot be loaded"):
        wrong.__enter__()
    assert wrong.pid == 0


@pytest.mark.usefixtures("no_process_stays")
def test_a_variant_that_hangs_is_stopped(tmp_path: Path, data: Path) -> None:
    hanging = spec(tmp_path / "e", "echo", latency_ms="600000")
    with probe(hanging, data, time_s=3) as one:
        pid = one.pid
        with pytest.raises(InvalidArtifact, match="did not finish within 3 s and was stopped"):
            one.sample(1)
        assert not psutil.pid_exists(pid)


@pytest.mark.usefixtures("no_process_stays")
def test_a_batch_that_does_not_end_ends_the_curve_before_it(tmp_path: Path, data: Path) -> None:
    """It failed the whole variant, which answers smaller batches."""
    limits = replace(QUICK, batch_sizes=(1, 2, 4, 8))
    hanging = spec(tmp_path / "e", "echo", hang_rows="4")
    with probe(hanging, data, limits, time_s=5) as one:
        assert [point.batch_size for point in one.curve()] == [1, 2]
        assert one.too_much == TooMuch(batch_size=4, time_s=5)
        assert one.sample_if_fits(8) is None


@pytest.mark.usefixtures("no_process_stays")
@pytest.mark.parametrize(
    ("hang_rows", "tile", "size"), [("8", 1, 8), ("9", 3, 16)], ids=["the first", "a later one"]
)
def test_where_a_batch_does_not_end_rows_are_judged_in_smaller_ones(
    tmp_path: Path, data: Path, hang_rows: str, tile: int, size: int
) -> None:
    """It failed the whole variant, and what was judged until then was lost."""
    rows = np.load(data)
    pixels, labels = (np.concatenate([rows[name]] * tile) for name in ("pixels", "labels"))
    np.savez(data, pixels=pixels, labels=labels)
    limits = replace(QUICK, batch_sizes=(1, 2, 4, 8, 16, 32))
    hanging = spec(tmp_path / "e", "echo", hang_rows=hang_rows)
    with probe(hanging, data, limits, time_s=5) as one:
        judgement = one.judge()
        assert (judgement.accuracy, judgement.rows) == (0.75, 8 * tile)
        assert one.too_much == TooMuch(batch_size=size, time_s=5)
        assert one.sample_if_fits(size) is None


@pytest.mark.usefixtures("no_process_stays")
def test_what_does_not_end_row_by_row_either_is_not_judged(tmp_path: Path, data: Path) -> None:
    hanging = spec(tmp_path / "e", "echo", hang_rows="1")
    with probe(hanging, data, time_s=3) as one:
        with pytest.raises(InvalidArtifact, match="did not finish within 3 s and was stopped"):
            one.judge()
        assert one.too_much is None


def test_a_batch_found_too_large_is_given_up_and_smaller_ones_are_settled(
    tmp_path: Path, data: Path
) -> None:
    hanging = spec(tmp_path / "e", "echo", hang_rows="4")
    with probe(hanging, data, time_s=5) as one:
        assert settle([(one, 1), (one, 4)]) == {}
        assert one.settled(1)
        assert 4 not in one.samples


@pytest.mark.usefixtures("no_process_stays")
def test_a_variant_that_takes_too_much_memory_is_told_so(tmp_path: Path, data: Path) -> None:
    greedy = models.write(tmp_path / "greedy.onnx", models.greedy(4_000))
    with pytest.raises(InvalidArtifact, match="needs more memory than a trial may take"):
        probe(spec(greedy), data).__enter__()


def test_a_pinned_child_stays_on_as_many_cores_as_it_has_threads(
    tmp_path: Path, data: Path
) -> None:
    echo = spec(tmp_path / "e", "echo")
    with Probe(echo, threads=1, data=data, pinned=True) as pinned, probe(echo, data) as free:
        assert os.sched_getaffinity(pinned.pid) == set(cores_for(1))
        assert os.sched_getaffinity(free.pid) == os.sched_getaffinity(0)


class Counter:
    """Takes 6 J between any two readings."""

    least_s = 0.001

    def read(self) -> Reading:
        return (0,)

    def energy_j(self, before: Reading, after: Reading) -> float:
        return 6.0


class Broken(Counter):
    def read(self) -> Reading:
        raise OSError("no such counter any more")


@pytest.mark.parametrize(
    ("counter", "energy_j"), [(Counter(), 6.0), (Broken(), None), (None, None)]
)
def test_energy_is_counted_by_the_batch(
    counter: PowerMeter | None, energy_j: float | None, tmp_path: Path
) -> None:
    """A batch of three takes longer than energy is counted, so it is run once."""
    slow = spec(tmp_path / "e", "echo", latency_ms_per_row="200")
    trial = Trial(slow, 1, [np.eye(4, dtype=np.float32)], power=lambda: counter)
    trial.load()
    assert trial.energy(3) == energy_j
    trial.close()


def test_of_the_idle_draw_a_worker_has_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes 0.2 s in 0.5 s or more: 6 J in all, of which 4 W are others' idle draw."""
    monkeypatch.setattr("profiler.sandbox.measure.idle_watts", lambda _: 8.0)
    slow = spec(tmp_path / "e", "echo", latency_ms_per_row="600")
    trial = Trial(slow, 1, [np.eye(4, dtype=np.float32)], power=Counter)
    trial.load()
    joules = trial.energy(1, share=0.5)
    trial.close()
    assert joules is not None
    assert 0.0 < joules < 6.0 - 4.0 * 0.6 + 1e-6


def test_a_share_of_an_idle_draw_that_cannot_be_told_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.sandbox.measure.idle_watts", lambda _: None)
    slow = spec(tmp_path / "e", "echo", latency_ms_per_row="1")
    trial = Trial(slow, 1, [np.eye(4, dtype=np.float32)], power=Counter)
    trial.load()
    assert trial.energy(1, share=0.5) is None
    trial.close()


def test_on_a_gpu_its_memory_and_the_hosts_are_told_apart(tmp_path: Path) -> None:
    taken_mib = iter((20.0, 70.0, 50.0))

    class Memory(DeviceMemory):
        def __init__(self) -> None: ...

        def taken_mib(self) -> float:
            return next(taken_mib)

    rows = [np.eye(4, dtype=np.float32)]
    trial = Trial(spec(tmp_path / "e", "echo"), 1, rows, gpu=True, device_memory=Memory)
    trial.load()
    turns = [trial.turn(1, 0.001, 1, 4, 5.0) for _ in range(2)]
    trial.close()
    assert [turn.device_mib for turn in turns] == [70.0, 70.0]
    assert all(turn.memory_mib < 70.0 for turn in turns)


def test_where_no_gpu_memory_can_be_read_a_variant_takes_its_file_at_least(tmp_path: Path) -> None:
    rows = [np.eye(4, dtype=np.float32)]
    trial = Trial(spec(tmp_path / "e", "echo"), 1, rows, gpu=True, device_memory=lambda: None)
    trial.load()
    assert trial.turn(1, 0.001, 1, 4, 5.0).device_mib == 1.0
    trial.close()


def test_whole_numbers_that_another_runtime_cuts_are_found(tmp_path: Path, data: Path) -> None:
    """No metric looks at the second output, and OpenVINO gives other ids for all rows."""
    numbers = {"zero": 0, "three": 3, "one": 1, "beyond": 2**40}
    model = models.model(
        nodes=[
            models.node("Slice", ("pixels", "zero", "three", "one"), "scores"),
            models.node("Cast", ("pixels",), "places", to=TensorProto.INT64),
            models.node("Add", ("places", "beyond"), "ids"),
        ],
        outputs=[
            models.tensor("scores", "batch", 3),
            models.tensor("ids", "batch", 4, kind=TensorProto.INT64),
        ],
        weights={name: np.array([number]) for name, number in numbers.items()},
    )
    path, kept = models.write(tmp_path / "ids.onnx", model), tmp_path / "kept.npy"
    ids = TensorSpec(name="ids", dtype="int64", shape=(4,))
    outputs = (*spec(path).outputs, ids)
    with probe(replace(spec(path), outputs=outputs), data) as reference:
        reference.judge(keep=kept)
        assert reference.judge(reference=kept).note == ""
    with (
        probe(replace(spec(path, "openvino"), outputs=outputs), data) as other,
        pytest.raises(InvalidArtifact, match="in 32 bits, and those of output 'ids' need more"),
    ):
        other.judge(reference=kept)
