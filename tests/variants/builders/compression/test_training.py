"""Training is bounded and repeatable, whatever a model ends in."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.variants.builders.compression.nets import (
    Net,
    digits,
    outputs,
    perceptron,
    right,
    trained,
)
from variants.builders.compression.scores import Targets, answers, logits_of, training_targets
from variants.builders.compression.trainable import TrainableGraph
from variants.builders.compression.training import Scores, Tuning

pytestmark = pytest.mark.slow

ENDS = ("Softmax", "LogSoftmax", "", "mean of two")


def ending(end: str) -> Any:
    """The same logits behind each end."""
    net = Net(64, seed=4)
    logits = net.gemm(net.op("Div", "pixels", net.const(16.0)), 64, 10)
    if end == "mean of two":
        both = [net.op("Softmax", logits), net.op("Softmax", logits)]
        return net.end(net.op("Mean", *both), 10)
    return net.end(net.op(end, logits) if end else logits, 10)


def few(count: int = 40) -> dict[str, Any]:
    return {"pixels": digits("train")[0]["pixels"][:count]}


@pytest.mark.parametrize("end", ENDS)
def test_logits_are_found_behind_any_end(end: str) -> None:
    """Up to a constant for each row, which no softmax sees."""
    plain = outputs(ending(""), few())

    found = logits_of(ending(end), few())
    with torch.no_grad():
        own = Scores(TrainableGraph(ending(end)))({"pixels": torch.tensor(few()["pixels"])}).numpy()

    for logits in (found, own):
        np.testing.assert_allclose(logits - logits[:, :1], plain - plain[:, :1], atol=1e-4)


def test_a_network_learns() -> None:
    untrained = perceptron(32)
    assert right(untrained) < 0.3
    assert right(trained(untrained, epochs=12)) > 0.9


def test_training_twice_gives_the_same_weights() -> None:
    one, two = (trained(perceptron(16), epochs=1).SerializeToString() for _ in range(2))
    assert one == two


class Clock:
    """A second passes with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_the_clock_ends_what_takes_too_long() -> None:
    clock = Clock()
    graph = TrainableGraph(perceptron(8))
    given, labels = digits("train")

    Tuning(epochs=100, limit_s=10, clock=clock)(graph, given, Targets(labels=labels))

    assert clock.now == 11


def test_the_learning_rate_falls_with_the_steps_and_faster_when_time_is_short() -> None:
    tuning = Tuning(limit_s=100)
    assert tuning.progress(0, 40, 9) == 0  # libraries warm up
    assert tuning.progress(20, 40, 30) == 0.5
    assert tuning.progress(20, 40, 75) == 0.75
    assert tuning.progress(20, 40, 101) > 1


def test_what_is_planned_fits_the_limit() -> None:
    """A perceptron of 64 x 8000 + 8000 x 10 multiply-adds, three times that for each row."""
    graph = TrainableGraph(perceptron(8000))
    work = 3 * 592_000
    assert Tuning(epochs=2, limit_s=1000).plan(graph, 1000) == (64, 32)
    batch, steps = Tuning(epochs=1000, limit_s=1).plan(graph, 1000)
    assert batch * steps * work <= 20e9 < batch * (steps + 1) * work


def test_small_batches_are_done_by_one_thread_and_torch_is_left_as_it_was() -> None:
    before = torch.get_num_threads()
    small, large = TrainableGraph(perceptron(8)), TrainableGraph(perceptron(4000, 4000))
    seen = []
    torch.set_num_threads(3)

    class Watched(TrainableGraph):
        def forward(self, *given: Any) -> Any:
            seen.append((torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()))
            return super().forward(*given)

    Tuning(epochs=1)(Watched(perceptron(8)), few(), Targets(labels=np.zeros(40, np.int64)))

    assert (Tuning().threads(small, 64), Tuning().threads(large, 64)) == (1, None)
    assert seen == [(1, True)]
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (3, False)
    torch.set_num_threads(before)


def test_rows_too_large_to_hold_many_come_in_small_batches() -> None:
    net = Net(3, 1024, 1024)
    hidden = net.op("GlobalAveragePool", net.op("Relu", net.conv("pixels", 3, 8, kernel=1)))
    graph = TrainableGraph(net.end(net.gemm(net.op("Flatten", hidden), 8, 10), 10))
    # 3 + 8 + 8 planes of 4 MiB
    assert Tuning().plan(graph, 1000)[0] == 512 // 76


def test_a_teacher_is_asked_about_no_more_than_there_is_time_for() -> None:
    """2.5 ms of 20 billion multiply-adds a second, a quarter of it for a teacher of 640 000."""
    teacher = perceptron(8649)
    rows, labels = digits("train")

    known, targets = training_targets(teacher, rows, labels, limit_s=0.0025)

    assert len(known["pixels"]) == 19
    assert targets.taught is not None
    assert targets.taught.shape == (19, 10)
    places = [int(np.flatnonzero((rows["pixels"] == row).all(1))[0]) for row in known["pixels"]]
    np.testing.assert_array_equal(targets.labels, labels[places])
    assert max(np.diff(places)) <= len(labels) / 18 + 1


def test_answers_stand_for_labels_that_are_not_known() -> None:
    net = perceptron(8)
    _, targets = training_targets(net, few(), None, limit_s=10)
    np.testing.assert_array_equal(targets.labels, answers(net, few()))
