"""ExampleProgress: training and registering the example, on one scale that never goes back."""

from controlplane.building.types import Progress
from controlplane.registry.example_progress import (
    IMPORTING_S,
    PARTS_PER_S,
    REGISTERING_S,
    TRAINING_S,
    ExampleProgress,
)
from variants.zoo.digits import MODELS


def at(step: str, done: int, total: int) -> Progress:
    return Progress(step=step, done=done, total=total, message=step)


def test_each_model_counts_for_as_long_as_it_takes() -> None:
    told: list[Progress] = []
    course = ExampleProgress(told.append, MODELS, MODELS)
    course.trained(at("start", 0, 1))
    for step in range(2 * len(MODELS)):
        course.trained(at("export" if step % 2 else "train", step, 2 * len(MODELS)))
    course.trained(at("done", 14, 14))
    for index in range(len(MODELS)):
        course.registered(index, at("check", 0, 4))
        course.registered(index, at("measure", 2, 4))
        course.registered(index, at("measure", 2, 8))  # more steps than were expected
    course.registered(len(MODELS) - 1, at("store", 8, 8))

    training = IMPORTING_S + sum(TRAINING_S.values())
    all_s = training + sum(REGISTERING_S.values())
    done = [one.done for one in told]
    assert {one.total for one in told} == {PARTS_PER_S * all_s}
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, PARTS_PER_S * all_s)
    assert done[3] == PARTS_PER_S * (IMPORTING_S + TRAINING_S[MODELS[0]])
    assert next(one.done for one in told if one.step == "check") == PARTS_PER_S * training


def test_what_was_trained_and_registered_before_does_not_count() -> None:
    told: list[Progress] = []
    course = ExampleProgress(told.append, ["cnn"])
    course.registered(0, at("check", 0, 4))
    course.registered(0, at("measure", 3, 4))

    assert [one.done for one in told] == [0, round(0.75 * PARTS_PER_S * REGISTERING_S["cnn"])]
    assert {one.total for one in told} == {PARTS_PER_S * REGISTERING_S["cnn"]}


def test_only_what_is_not_trained_yet_is_trained_for() -> None:
    told: list[Progress] = []
    course = ExampleProgress(told.append, ["cnn", "cnn-large"], ["cnn-large"])
    course.trained(at("export", 1, 2))
    course.trained(at("done", 2, 2))

    training = IMPORTING_S + TRAINING_S["cnn-large"]
    assert [one.done for one in told] == [PARTS_PER_S * IMPORTING_S, PARTS_PER_S * training]
    assert told[0].total == PARTS_PER_S * (
        training + REGISTERING_S["cnn"] + REGISTERING_S["cnn-large"]
    )
