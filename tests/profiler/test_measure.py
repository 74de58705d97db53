"""Measuring, on a runtime whose cost is known: the echo runtime takes the time that it is told."""

from pathlib import Path

import numpy as np
import pytest

from profiler.accuracy import accuracy
from profiler.measure import MeasureLimits, measure, percentile_point
from variants.errors import InvalidArtifact, RuntimeFailed
from variants.types import Digest, LatencyPoint, TaskName, TensorSpec, VariantName
from workers.runtime import Tensor, make_runtime
from workers.types import LoadSpec


def echo(path: Path, **options: str) -> LoadSpec:
    path.write_bytes(bytes(2**20))
    return LoadSpec(
        task=TaskName("echo"),
        variant=VariantName("echo-v1"),
        runtime="echo",
        artifact=Digest("0" * 64),
        path=str(path),
        inputs=(TensorSpec(name="x", dtype="float32", shape=(3,)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(3,)),),
        latency=(),
        memory_mib=0.0,
        load_s=0.0,
        options=tuple(options.items()),
    )


ROWS = [np.eye(3, dtype=np.float32)]


def test_latency_is_of_the_whole_batch_and_never_less_than_it_takes(tmp_path: Path) -> None:
    spec = echo(tmp_path / "e", latency_ms="1", latency_ms_per_row="1")
    found = measure(spec, 1, ROWS, limits=MeasureLimits(batch_sizes=(1, 4), point_s=0.02))
    one, four = found.points
    assert (one.batch_size, four.batch_size) == (1, 4)
    assert 2.0 <= one.p50_ms <= one.p95_ms <= one.p99_ms
    assert 5.0 <= four.p50_ms <= four.p95_ms <= four.p99_ms


def test_load_time_is_what_loading_takes(tmp_path: Path) -> None:
    found = measure(echo(tmp_path / "e", load_s="0.02"), 1, ROWS)
    assert found.load_s >= 0.02


def test_memory_is_at_least_the_artifact(tmp_path: Path) -> None:
    assert measure(echo(tmp_path / "e"), 1, ROWS).memory_mib >= 1.0


def test_a_batch_that_is_too_slow_ends_the_profile(tmp_path: Path) -> None:
    spec = echo(tmp_path / "e", latency_ms_per_row="10")
    limits = MeasureLimits(
        batch_sizes=(1, 2, 8, 16), point_s=0.01, min_runs=4, slowest_batch_s=0.07
    )
    assert [p.batch_size for p in measure(spec, 1, ROWS, limits=limits).points] == [1, 2]


def test_a_runtime_that_fails_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailed):
        measure(echo(tmp_path / "e", fail_value="1"), 1, ROWS)


def test_percentiles_are_times_that_were_seen() -> None:
    times = [index / 1000 for index in range(1, 101)]
    assert percentile_point(8, times) == LatencyPoint(
        batch_size=8, p50_ms=51.0, p95_ms=96.0, p99_ms=100.0
    )


class Fixed:
    """Gives the same scores for each row, whatever it is asked."""

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores

    def load(self) -> None: ...

    def run(self, inputs: list[Tensor] | tuple[Tensor, ...] | object) -> list[Tensor]:
        assert isinstance(inputs, list)
        return [np.tile(self._scores, (len(inputs[0]), 1))]

    def close(self) -> None: ...


def test_accuracy_counts_rows_that_are_right(tmp_path: Path) -> None:
    runtime = make_runtime(echo(tmp_path / "e"), 1)
    runtime.load()
    assert accuracy(runtime, ROWS, np.array([0, 1, 1]), batch_size=2) == pytest.approx(2 / 3)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_accuracy_refuses_what_is_not_finite(wrong: float) -> None:
    with pytest.raises(InvalidArtifact, match="not finite on evaluation row 0"):
        accuracy(Fixed(np.array([0.0, wrong])), ROWS, np.array([0, 1, 1]))
