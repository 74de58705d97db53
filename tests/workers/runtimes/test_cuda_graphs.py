"""Recorded batches, over a driver on the host: ONNX Runtime itself runs on the CPU."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from profiler.sandbox.limits import MeasureLimits
from tests.workers.builders import WIDTH, double_model, onnx_spec
from tests.workers.runtimes.host_cuda import HostCuda
from workers.runtimes import uploading
from workers.runtimes.cuda_graphs import (
    LATER,
    MEASURED_MOST,
    SIZES,
    Graphs,
    sizes_of,
)
from workers.runtimes.gpu_thread import RECORDING
from workers.types import LoadSpec


class Session:
    """A session that counts runs by the shape that they are bound to."""

    def __init__(self, path: str) -> None:
        self._session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.runs: list[int] = []
        self.room = SIZES[-1]
        """Rows of the largest batch that fits."""
        self.alone: list[bool] = []
        """For each run, whether nothing could be recorded or take memory meanwhile."""

    def io_binding(self) -> Any:
        return self._session.io_binding()

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        self.runs.append(int(options.get_run_config_entry("gpu_graph_id")))
        self.alone.append(RECORDING.locked())
        self._session.run_with_iobinding(binding, options)
        if binding.get_outputs()[0].shape()[0] > self.room:
            raise MemoryError


@pytest.fixture
def spec(tmp_path: Path) -> LoadSpec:
    return replace(onnx_spec(double_model(tmp_path / "double.onnx")), latency=((1, 1.0), (64, 9.0)))


@pytest.fixture
def cuda() -> HostCuda:
    return HostCuda()


@pytest.fixture
def session(spec: LoadSpec) -> Session:
    return Session(spec.path)


@pytest.fixture
def graphs(cuda: HostCuda, session: Session, spec: LoadSpec) -> Iterator[Graphs]:
    made = Graphs(session, spec, cuda.device(), ort.RunOptions, place="cpu")
    record_all(made)
    yield made
    made.close()


def record_all(graphs: Graphs) -> None:
    graphs.record()
    while graphs.record_next():
        pass


def rows(count: int) -> Any:
    return np.arange(count * WIDTH, dtype=np.float32).reshape(count, WIDTH)


def test_each_size_is_planned_and_then_run_twice_to_be_recorded(
    graphs: Graphs, session: Session
) -> None:
    """The largest comes early: what it takes of the device serves the others."""
    recorded = [1, 64, *(size for size in LATER if size < 64)]
    assert session.runs == [run for size in recorded for run in (-1, size, size)]
    assert graphs.most_rows == 64


def test_a_load_records_one_row_and_the_largest_batch(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    """All others are filled up to the largest until they are recorded."""
    graphs = Graphs(session, spec, cuda.device(), ort.RunOptions, place="cpu")
    graphs.record()
    assert set(session.runs) == {-1, 1, 64}
    for count, played in ((1, 1), (2, 64), (9, 64), (64, 64)):
        np.testing.assert_array_equal(graphs.run([[rows(count)]], count)[0], 2 * rows(count))
        assert session.runs[-1] == played

    graphs.close()
    assert cuda.idle


def test_sizes_follow_in_an_order_if_no_batch_lacks_one(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    graphs = Graphs(session, spec, cuda.device(), ort.RunOptions, place="cpu")
    graphs.record()
    assert graphs.record_next()
    for count, played in ((1, 1), (2, 8), (8, 8), (9, 64)):
        np.testing.assert_array_equal(graphs.run([[rows(count)]], count)[0], 2 * rows(count))
        assert session.runs[-1] == played
    graphs.close()


def test_the_size_that_batches_lack_most_is_recorded_next(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    graphs = Graphs(session, spec, cuda.device(), ort.RunOptions, place="cpu")
    graphs.record()
    for count in (1, 20, 23, 23, 3, 64):
        graphs.run([[rows(count)]], count)
    recorded = []
    for _ in range(3):
        graphs.record_next()
        recorded.append(session.runs[-1])

    assert recorded == [24, 4, LATER[0]]  # the first spares 3 x 40 rows, and 40 of the batch of 3
    graphs.close()


def test_it_knows_whether_batches_lack_a_size(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    few = replace(spec, latency=((1, 1.0), (4, 2.0)))
    graphs = Graphs(session, few, cuda.device(), ort.RunOptions, place="cpu")
    graphs.record()
    found = []
    for count in (1, 3, 4, 2):
        graphs.run([[rows(count)]], count)
        found.append(graphs.misses)
    graphs.record_next()

    assert [*found, graphs.misses] == [False, False, False, True, False]
    graphs.close()


def test_every_size_has_its_place_in_the_order() -> None:
    assert {1, *LATER, SIZES[-1]} == set(SIZES)


def test_a_batch_ends_what_counts_as_idle(graphs: Graphs) -> None:
    before_s = graphs.idle_s
    graphs.run([[rows(1)]], 1)

    assert graphs.idle_s < before_s


def test_others_may_record_while_it_runs(cuda: HostCuda, graphs: Graphs) -> None:
    """The fixture's thread is that of the variant."""
    assert cuda.ignores_recordings


def test_only_the_recording_keeps_others_out(graphs: Graphs, session: Session) -> None:
    assert session.alone == [False, True, True] * (len(session.runs) // 3)
    graphs.run([[rows(3)]], 3)
    assert session.alone[-1] is False


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 9, 16, 17, 63, 64])
def test_a_batch_between_two_sizes_is_filled_up(
    graphs: Graphs, session: Session, count: int
) -> None:
    (found,) = graphs.run([[rows(count)]], count)

    np.testing.assert_array_equal(found, 2 * rows(count))
    assert session.runs[-1] == min(size for size in SIZES if size >= count)


def test_an_answer_is_not_written_over_by_the_next_run(graphs: Graphs) -> None:
    (first,) = graphs.run([[rows(3)]], 3)
    graphs.run([[rows(4) + 100]], 4)

    np.testing.assert_array_equal(first, 2 * rows(3))


@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 5, 1, 3), (64,), (30, 30)])
def test_a_batch_may_come_in_pieces(
    graphs: Graphs, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are sent to the device in pieces of another size."""
    monkeypatch.setattr(uploading, "PIECE_BYTES", 4 * 4 * WIDTH)
    pieces = [rows(count) + 1000 * number for number, count in enumerate(counts)]

    (found,) = graphs.run([pieces], sum(counts))

    np.testing.assert_array_equal(found, 2 * np.concatenate(pieces))


def test_a_size_that_is_no_power_of_two_is_the_largest_if_the_batch_is(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    odd = replace(spec, latency=((1, 1.0), (20, 2.0)))

    assert sizes_of(odd) == (1, 2, 4, 8, 12, 16, 20)


def test_nothing_is_recorded_above_the_largest_batch(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    small = replace(spec, latency=((1, 1.0), (4, 2.0)))
    graphs = Graphs(session, small, cuda.device(), ort.RunOptions, place="cpu")
    record_all(graphs)

    assert graphs.most_rows == 4
    assert set(session.runs) == {-1, 1, 2, 4}
    graphs.close()


def test_all_sizes_that_are_measured_are_recorded_while_it_is_measured(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    """What is being measured has no latencies yet."""
    graphs = Graphs(session, replace(spec, latency=()), cuda.device(), ort.RunOptions, place="cpu")
    record_all(graphs)

    assert graphs.most_rows == MEASURED_MOST == max(MeasureLimits().batch_sizes)
    assert set(session.runs) == {-1, *(size for size in SIZES if size <= MEASURED_MOST)}
    graphs.close()
    assert cuda.idle


@pytest.mark.parametrize("room", [0, 1, 40])
def test_sizes_that_have_no_room_are_left_out_while_it_is_measured(
    cuda: HostCuda, session: Session, spec: LoadSpec, room: int
) -> None:
    session.room = room
    graphs = Graphs(session, replace(spec, latency=()), cuda.device(), ort.RunOptions, place="cpu")
    if room:
        record_all(graphs)
        assert graphs.most_rows == max(size for size in SIZES if size <= room)
        np.testing.assert_array_equal(graphs.run([[rows(1)]], 1)[0], 2 * rows(1))
    else:
        with pytest.raises(MemoryError):
            graphs.record()
        assert graphs.most_rows == 0
    graphs.close()
    assert cuda.idle


def test_a_measured_variant_needs_room_for_all_sizes(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    session.room = 40
    graphs = Graphs(session, spec, cuda.device(), ort.RunOptions, place="cpu")
    with pytest.raises(MemoryError):
        graphs.record()
    graphs.close()
    assert cuda.idle


def test_variants_share_what_is_page_locked(
    cuda: HostCuda, session: Session, spec: LoadSpec
) -> None:
    device = cuda.device()
    small, large = (
        Graphs(session, replace(spec, latency=((most, 1.0),)), device, ort.RunOptions, place="cpu")
        for most in (4, 64)
    )
    small.record()
    large.record()

    assert len(cuda.pinned) == 1
    np.testing.assert_array_equal(small.run([[rows(3)]], 3)[0], 2 * rows(3))
    large.close()
    np.testing.assert_array_equal(small.run([[rows(4)]], 4)[0], 2 * rows(4))
    small.close()
    assert cuda.idle


def test_all_memory_is_given_back(cuda: HostCuda, session: Session, spec: LoadSpec) -> None:
    graphs = Graphs(session, spec, cuda.device(), ort.RunOptions, place="cpu")
    graphs.record()
    assert not cuda.idle

    graphs.close()

    assert cuda.idle
