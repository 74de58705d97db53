"""The search on made-up machines whose latencies are known: what it measures, and what it says."""

from collections.abc import Mapping
from math import exp, log
from statistics import median

import pytest

from profiler.sampling.search import SLOS_MS, Search
from profiler.sampling.space import Configuration, Space
from variants.types import LatencyPoint

pytestmark = pytest.mark.slow

SIZES = (1, 2, 4, 8, 16, 32)
SPACE = Space(
    kinds=(
        "onnx-fp32", "onnx-fp16", "onnx-int8", "onnx-int8-dynamic",
        "openvino-fp32", "openvino-bf16", "openvino-fp16", "openvino-int8",
    ),
    threads=(2, 1),
    batch_sizes=SIZES,
)  # fmt: skip
OVERHEAD = {"onnx": 0.02, "openvino": 0.1}
SPEED = {"fp32": 1.0, "fp16": 0.9, "bf16": 0.6, "int8": 2.2}


def true_ms(each: Configuration, row_ms: float) -> float:
    """Overhead of the runtime and work that is shared by threads, with quirks of each kind."""
    runtime, precision = each.kind.split("-")[:2]
    quirk = 1.0 + 0.05 * (sum(map(ord, each.kind)) % 5)
    shared = float(each.threads) ** 0.85
    work = row_ms * each.batch_size / SPEED[precision] / shared * quirk
    bend = 1.0 - 0.04 * log(each.batch_size)
    ms: float = OVERHEAD[runtime] * float(each.threads) ** 0.3 + work * bend
    return ms


def point(each: Configuration, ms: float) -> LatencyPoint:
    return LatencyPoint(batch_size=each.batch_size, p50_ms=ms, p95_ms=1.1 * ms, p99_ms=1.2 * ms)


def searched(
    row_ms: float, history: Mapping[str, Mapping[Configuration, float]] | None = None
) -> Search:
    search = Search(SPACE, history=history)
    while (each := search.next()) is not None:
        search.tell(each, point(each, true_ms(each, row_ms)))
    return search


def errors(search: Search, row_ms: float) -> list[float]:
    return sorted(
        abs(log(found.p50_ms / true_ms(each, row_ms)))
        for each, found in search.surface().at.items()
        if found.error
    )


@pytest.mark.parametrize("row_ms", [0.01, 0.3, 8.0])
def test_a_fifth_is_measured_and_the_rest_is_known_within_limits(row_ms: float) -> None:
    search = searched(row_ms)
    assert len(search.measured) <= 0.2 * len(SPACE)
    wrong = errors(search, row_ms)
    assert median(wrong) <= 0.10
    assert wrong[int(0.9 * len(wrong))] <= 0.25


@pytest.mark.parametrize("row_ms", [0.01, 0.3, 8.0])
def test_what_it_chooses_for_an_slo_is_hardly_worse_than_the_best(row_ms: float) -> None:
    surface = searched(row_ms).surface()
    regrets = []
    for slo_ms in SLOS_MS:
        fitting = [
            each.batch_size / true_ms(each, row_ms)
            for each in SPACE.configurations
            if 1.1 * true_ms(each, row_ms) <= slo_ms
        ]
        if fitting:
            chosen = surface.best(slo_ms)
            assert chosen is not None
            regrets.append(1 - chosen.batch_size / true_ms(chosen, row_ms) / max(fitting))
    assert median(regrets) <= 0.05


def test_other_models_of_the_machine_make_it_surer() -> None:
    known = {
        f"model-{row_ms}": {each: true_ms(each, row_ms) for each in SPACE.configurations}
        for row_ms in (0.02, 0.1, 1.0)
    }
    alone, taught = searched(0.3), searched(0.3, known)
    assert median(errors(taught, 0.3)) < median(errors(alone, 0.3))
    assert len(taught.measured) <= len(alone.measured)


def test_measured_points_are_as_they_were_and_others_say_how_unsure_they_are() -> None:
    search = searched(0.3)
    surface = search.surface()
    for each, found in surface.at.items():
        if each in search.measured:
            assert found == search.measured[each]
        else:
            assert found.error > 0
        assert found.p50_ms <= found.p95_ms <= found.p99_ms
    profile = surface.points("openvino-int8", 1)
    assert [p.batch_size for p in profile] == list(SIZES)


def test_the_same_measurements_lead_to_the_same_questions() -> None:
    assert list(searched(0.3).measured) == list(searched(0.3).measured)


def test_what_fails_is_left_out_and_asked_for_no_more() -> None:
    search = Search(SPACE)
    asked = []
    while (each := search.next()) is not None:
        asked.append(each)
        if each.kind == "onnx-fp16":
            search.leave_out("onnx-fp16")
        else:
            search.tell(each, point(each, true_ms(each, 0.3)))
    assert sum(each.kind == "onnx-fp16" for each in asked) == 1
    assert search.surface().points("onnx-fp16", 2) == ()
    assert len(search.surface().points("onnx-fp32", 2)) == len(SIZES)


def test_batches_that_are_too_slow_are_left_out_by_themselves() -> None:
    search = searched(8.0)
    search.leave_out("onnx-fp32", 1, above=8)
    sizes = [p.batch_size for p in search.surface().points("onnx-fp32", 1)]
    assert sizes == [1, 2, 4, 8]


def test_an_interrupt_leaves_what_is_known() -> None:
    search = Search(SPACE)
    each = search.next()
    assert each is not None
    search.tell(each, point(each, true_ms(each, 0.3)))
    surface = search.surface()
    assert len(surface.at) == len(SPACE)
    assert surface.measured(each)
    assert exp(surface.at[SPACE.largest("openvino-int8")].error) > 1.05


def test_before_anything_is_measured_nothing_is_said() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        Search(SPACE).surface()
    with pytest.raises(ValueError, match="not in the space"):
        Search(SPACE).tell(
            Configuration(kind="tea", threads=1, batch_size=1),
            LatencyPoint(batch_size=1, p50_ms=1, p95_ms=1, p99_ms=1),
        )


@pytest.mark.parametrize("threads", [(), (0,), (1, 1)])
def test_a_space_is_made_of_different_positive_values(threads: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Space(kinds=("a",), threads=threads, batch_sizes=(1,))


@pytest.mark.parametrize(("overhead_ms", "row_ms"), [(1.0, 0.1), (0.8, 0.01), (0.1, 1.0)])
def test_a_single_curve_is_measured_at_enough_sizes_to_be_known(
    overhead_ms: float, row_ms: float
) -> None:
    """As on a GPU: one kind, one number of threads, and much overhead."""
    space = Space(kinds=("onnx-fp16-cuda",), threads=(1,), batch_sizes=(*SIZES, 64, 128))
    truth = {each: overhead_ms + row_ms * each.batch_size for each in space.configurations}
    search = Search(space)
    each: Configuration | None = space.largest("onnx-fp16-cuda")
    while each is not None:
        search.tell(each, point(each, truth[each]))
        each = search.next()

    assert len(search.measured) == 4
    for each, found in search.surface().at.items():
        assert found.p50_ms == pytest.approx(truth[each], rel=0.1)
