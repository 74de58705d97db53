"""What a controller that takes over tells of the time before."""

from controlplane.controller.events.status_events import Target
from controlplane.controller.events.succession import Past, missed, remembered, took_over
from variants.types import Event, Placement, Plan, TaskName, TickRecord, VariantName, WorkerId

PLAN = Plan(
    version=7,
    epoch=3,
    placements=(
        Placement(worker=WorkerId("w1"), task=TaskName("t"), variant=VariantName("v"), share=0.0),
    ),
    workers={},
)
TICK = TickRecord(
    plan_version=7,
    at="",
    body={"workers": [{"id": "w1", "device_kind": "cpu-1"}, {"id": "w2", "device_kind": "cpu-1"}]},
)


def events(*told: tuple[str, str]) -> list[Event]:
    """Kinds and subjects, oldest first; the catalog gives the newest first."""
    made = [
        Event(at="", kind=kind, subject=subject, message="", seq=seq)
        for seq, (kind, subject) in enumerate(told, 1)
    ]
    return made[::-1]


def test_the_first_controller_has_no_past() -> None:
    past = remembered(1, None, (), ())
    assert past == Past()
    assert took_over(past, 1, None) == (
        "controller_started",
        "epoch 1",
        "it is the first to lead",
    )


def test_a_successor_says_whom_it_follows_and_how_that_one_ended() -> None:
    killed = remembered(4, PLAN, (), events(("controller_started", "epoch 3")))
    assert took_over(killed, 4, PLAN)[2] == (
        "it took over from epoch 3, which ended without a word; plan 7 stands"
    )
    stopped = remembered(
        4,
        PLAN,
        (),
        events(("controller_started", "epoch 3"), ("controller_stopped", "epoch 3")),
    )
    assert took_over(stopped, 4, PLAN)[2] == (
        "it took over from epoch 3, which had been stopped; plan 7 stands"
    )


def test_an_epoch_that_told_nothing_is_no_predecessor() -> None:
    """It was taken while the database answered every other time."""
    past = remembered(6, None, (), events(("controller_started", "epoch 3")))
    assert (past.epoch, past.stopped) == (3, False)
    assert remembered(6, None, (), ()).epoch == 5


def test_workers_are_remembered_from_plan_tick_and_events() -> None:
    past = remembered(
        4,
        PLAN,
        (TICK,),
        events(("worker_joined", "w3"), ("worker_lost", "w2"), ("worker_joined", "w4"),
               ("worker_left", "w4")),
    )  # fmt: skip
    assert past.workers == {"w1": "cpu-1", "w3": ""}


def test_workers_that_ended_with_all_else_were_not_lost_with_a_later_control_loop() -> None:
    """`modelless down` and `up`, and the machine loses power before the new control loop has told
    that the workers of before are gone."""
    past = remembered(
        4,
        None,
        (),
        events(("controller_started", "epoch 2"), ("gateway_started", "a"), ("worker_joined", "w1"),
               ("controller_stopped", "epoch 2"), ("gateway_stopped", "a"),
               ("controller_started", "epoch 3"), ("gateway_started", "b"),
               ("worker_joined", "w2")),
    )  # fmt: skip
    assert past.ended == {"w1"}
    told = {subject: (kind, words) for kind, subject, words in missed(past, [], {})}
    assert told["w1"][0] == "worker_left"
    assert told["w2"][0] == "worker_lost"


def test_workers_that_ran_on_while_the_control_loop_was_replaced_did_not_end() -> None:
    past = remembered(
        4,
        None,
        (),
        events(("gateway_started", "a"), ("worker_joined", "w1"), ("controller_stopped", "epoch 2"),
               ("controller_started", "epoch 3")),
    )  # fmt: skip
    assert past.ended == frozenset()


def test_gateways_are_remembered_until_they_stop_or_are_lost() -> None:
    past = remembered(
        4,
        None,
        (),
        events(("gateway_started", "a"), ("gateway_started", "b"), ("gateway_started", "c"),
               ("gateway_lost", "b"), ("gateway_stopped", "a")),
    )  # fmt: skip
    assert past.gateways == {"c"}


def test_what_a_backup_remembers_ran_elsewhere_and_is_not_missed() -> None:
    before = (("controller_started", "epoch 3"), ("gateway_started", "a"), ("worker_joined", "w3"))
    restored = remembered(4, PLAN, (TICK,), events(*before, ("restored", "catalog")))
    assert (restored.workers, restored.gateways) == ({}, frozenset())
    assert took_over(restored, 4, PLAN)[2] == (
        "it is the first to lead since the catalog was restored from a backup; plan 7 stands"
    )
    after = (("controller_started", "epoch 4"), ("gateway_started", "b"), ("worker_joined", "w2"))
    later = remembered(5, PLAN, (TICK,), events(*before, ("restored", "catalog"), *after))
    assert later.workers == {"w2": "cpu-1"}
    assert later.gateways == {"b"}
    assert took_over(later, 5, None)[2] == "it took over from epoch 4, which ended without a word"


def test_what_is_missing_was_lost_while_no_controller_was_looking() -> None:
    past = Past(epoch=3, workers={"w1": "cpu-1", "w2": "cpu-1"})
    assert list(missed(past, ["w1", "w9"], {"cpu-1": Target(count=2)})) == [
        ("worker_lost", "w2", "worker w2 is gone: it was lost while no control loop was running")
    ]


def test_what_is_missing_after_a_stop_has_left() -> None:
    past = Past(epoch=3, stopped=True, workers={"w1": "cpu-1"})
    for targets in ({}, {"cpu-1": Target(count=0)}):
        assert list(missed(past, [], targets)) == [
            ("worker_left", "w1", "worker w1 is gone: it ended while the control loop was stopped")
        ]


def test_what_was_to_go_has_left() -> None:
    past = Past(epoch=3, workers={"w1": "cpu-1", "w2": "cpu-1", "w3": "cpu-1"})
    assert [kind for kind, _, _ in missed(past, ["w3"], {"cpu-1": Target(count=2)})] == [
        "worker_left",
        "worker_lost",
    ]


def test_workers_of_another_ray_cluster_have_left() -> None:
    """As where an upgrade starts the next cluster beside the last, which goes on for a while."""
    past = remembered(
        4, PLAN, (TICK,), events(("controller_started", "epoch 3"), ("worker_joined", "w9")),
        elsewhere=True,
    )  # fmt: skip
    assert took_over(past, 4, None)[2] == "it took over from epoch 3, of another Ray cluster"
    told = list(missed(past, [], {"cpu-1": Target(count=2)}))
    assert {kind for kind, _, _ in told} == {"worker_left"}
    assert told[-1][2] == (
        "worker w9 is gone: it is of the Ray cluster whose control loop led before"
    )
