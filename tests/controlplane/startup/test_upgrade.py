"""Replacing what runs, one by one, on a Serve and workers that are played."""

from dataclasses import replace
from pathlib import Path

import pytest
import typer

from controlplane.cli.upgrading import Stopped, only_one, pausing, telling_what_stays
from controlplane.cluster.replicas import Deployment, Replicas
from controlplane.settings import load_settings
from controlplane.slices import Kind
from controlplane.startup.presence import write_state
from controlplane.startup.replacing.parts import Part
from controlplane.startup.replacing.served import Serving, serving
from controlplane.startup.replacing.upgraded_parts import none_kept
from controlplane.startup.state_directory import take_lock
from tests.controlplane.startup.played import NEW, OLD, Made, Played, upgrade, workers
from variants.errors import ClusterUnavailable, Conflict, DeadlineExceeded
from variants.types import DeviceKindName


def test_serve_starts_everything_new_before_anything_leaves() -> None:
    """A control loop that crashes while workers are replaced could not start otherwise."""
    played = Played({"o1": OLD, "o2": OLD})
    loop = Made(application="loop", name="controller", built=None)
    upgrade(played).run([*workers(played), Part(words="control loop", deployment=loop)])
    assert played.asked[:3] == ["renew a", "renew loop", "a"]


def test_what_was_scaled_to_none_gets_none() -> None:
    played = Played({})
    upgrade(played).run(workers(played))
    assert (played.asked, played.renewed) == ([], False)
    assert played.said == ["workers: none is to run, and none is replaced"]


def test_what_plans_start_later_is_not_started_with_the_settings_of_before() -> None:
    """The control loop deploys it again, so the new one has to be there first."""
    played, loop = Played({}), Made(application="loop", name="controller", built=None)
    [none] = workers(played)
    parts = [replace(none, forgettable=True), Part(words="control loop", deployment=loop)]
    upgrade(played).run(parts)
    assert played.asked == ["end a"]
    assert played.said[-1] == "workers: what starts later is of this generation"

    played = Played({}, starts_new=True)
    upgrade(played).run(parts)
    assert played.asked == []

    played = Played({"o1": OLD, "o2": OLD})
    upgrade(played).run([replace(none, forgettable=True)])
    assert "end a" not in played.asked


class Falling(Played):
    """Workers that say nothing any more once the control loop was replaced."""

    loops = 0

    def look(self, deployment: Deployment) -> Replicas:
        if deployment.application == "loop":
            self.loops += 1
        elif self.loops == 2:
            raise ClusterUnavailable("a worker does not say what it is")
        return super().look(deployment)


def test_what_runs_is_not_looked_at_again_when_all_is_replaced() -> None:
    played = Falling({"n1": NEW}, starts_new=True)
    loop = Made(application="loop", name="controller", built=None)
    [one] = workers(played)
    parts = [replace(one, forgettable=True), Part(words="control loop", deployment=loop)]
    upgrade(played).run(parts)
    assert (played.loops, played.asked) == (2, [])


class TakingIn(Played):
    """One is not among those that run while it takes in its new configuration."""

    def look(self, deployment: Deployment) -> Replicas:
        found = super().look(deployment)
        if not self.renewed or self.now_s >= 1.0:
            return found
        others = {one: of for one, of in found.generations.items() if one != "o3"}
        return replace(found, generations=others)


def test_the_one_more_has_gone_when_as_many_run_as_are_to_run() -> None:
    """It was waited for until the patience ended, though it had gone, where one was overlooked."""
    played = TakingIn({"o1": OLD, "o2": OLD, "o3": OLD}, room=1)
    upgrade(played).run(workers(played))
    assert list(played.running.values()) == [NEW, NEW, NEW]
    assert not [line for line in played.said if "one more runs still" in line]


def test_one_that_is_missing_counts_among_those_that_are_to_run() -> None:
    played = Played({"o1": OLD, "o2": OLD})
    played.target = 3
    with pytest.raises(DeadlineExceeded):
        upgrade(played).run(workers(played))
    assert "workers: 2 of 3 to be replaced" in played.said


def test_what_one_worker_alone_holds_is_said_before_it_leaves() -> None:
    played = Played({"o1": OLD, "o2": OLD})
    played.held["o2"] = frozenset({("digits", "a")})
    upgrade(played).run(workers(played))
    assert any("w-o1 alone holds digits/b" in line for line in played.said)


def test_without_room_one_after_another_while_the_others_answer() -> None:
    played = Played({"o1": OLD, "o2": OLD, "o3": OLD})
    work = upgrade(played)
    work.run(workers(played))
    assert (set(played.running.values()), len(played.running)) == ({NEW}, 3)
    assert (work.replaced, played.fewest) == (3, 2)


def test_with_room_a_new_one_is_loaded_before_the_only_one_leaves() -> None:
    played = Played({"o1": OLD}, room=1)
    upgrade(played).run(workers(played))
    assert (set(played.running.values()), len(played.running)) == ({NEW}, 1)
    assert (played.fewest, played.extra) == (1, False)
    assert list(played.running) == ["n1"]  # it stays: none was started for the one that left


@pytest.mark.parametrize("room", [0, 1])
def test_asked_for_all_what_is_new_already_is_replaced_as_well(room: int) -> None:
    played = Played({"o1": NEW, "o2": NEW}, room=room, starts_new=True)
    upgrade(played).run(workers(played))
    assert set(played.running) == {"o1", "o2"}
    work = upgrade(played, every=True)
    work.run(workers(played))
    assert (work.replaced, len(played.running)) == (2, 2)
    assert not {"o1", "o2"} & played.running.keys()
    assert played.fewest >= 1 + room


def test_why_memory_leaves_no_room_is_said() -> None:
    played = Played({"o1": OLD, "o2": OLD})
    [part] = workers(played)
    upgrade(played).run([replace(part, lacks="one more is not started first: 12 MiB are free")])
    assert "workers: one more is not started first: 12 MiB are free" in played.said
    assert set(played.running.values()) == {NEW}


def test_an_installation_of_before_room_was_kept_is_told_so() -> None:
    kind = Kind(
        name=DeviceKindName("cpu-2"), cores=2, most=1, least=None, memory_mib=1.0,
        usd_per_hour=0.1, idle_w=None,
    )  # fmt: skip
    assert "a release that kept no room for it has started Ray" in none_kept(kind, 0)
    assert none_kept(kind, 1) == ""  # some is kept, for a smaller kind
    assert none_kept(replace(kind, gpu="nvidia-h200"), 0) == ""


def test_the_only_worker_does_not_leave_unless_a_gap_is_allowed() -> None:
    played = Played({"o1": OLD})
    with pytest.raises(Conflict, match="no other worker answers for digits"):
        upgrade(played).run(workers(played))
    assert sum("o1 alone answers for digits: waiting up to 30 s" in one for one in played.said) == 1
    assert played.running == {"o1": OLD}
    upgrade(played, allow_gap=True).run(workers(played))
    assert list(played.running.values()) == [NEW]


def test_the_first_that_does_not_become_healthy_ends_it_and_the_others_run_on() -> None:
    played = Played({"o1": OLD, "o2": OLD, "o3": OLD}, broken=True)
    with pytest.raises(DeadlineExceeded, match="no new one of the workers is healthy after 30 s"):
        upgrade(played).run(workers(played))
    assert {"o2", "o3"} < played.running.keys()


def test_with_room_none_leaves_for_one_that_does_not_become_healthy() -> None:
    played = Played({"o1": OLD, "o2": OLD}, room=1, broken=True)
    with pytest.raises(DeadlineExceeded):
        upgrade(played).run(workers(played))
    assert ({"o1", "o2"} <= played.held.keys(), played.extra) == (True, False)


def nodes_of_their_own(played: Played) -> list[Part]:
    made = Made(application="a", name="gateway", built=None)
    return [Part(words="gateways", deployment=made, extra="gateways", room=False)]


def test_gateways_that_have_all_nodes_leave_before_the_next_one_comes() -> None:
    played = Played({"o1": OLD, "o2": OLD})
    upgrade(played).run(nodes_of_their_own(played))
    assert set(played.running.values()) == {NEW}
    assert (len(played.running), played.target) == (2, 2)
    assert "no node has room for one more, so one leaves before the next comes" in " ".join(
        played.said
    )


def test_the_only_gateway_that_has_the_only_node_leaves_where_a_gap_is_allowed() -> None:
    played = Played({"o1": OLD})
    with pytest.raises(Conflict, match="nobody answers while the only one is replaced"):
        upgrade(played).run(nodes_of_their_own(played))
    assert played.running == {"o1": OLD}
    upgrade(played, allow_gap=True).run(nodes_of_their_own(played))
    assert list(played.running.values()) == [NEW]


def test_what_is_new_already_is_left_alone() -> None:
    played = Played({"o1": NEW, "o2": NEW}, starts_new=True)
    upgrade(played).run(workers(played))
    assert played.running == {"o1": NEW, "o2": NEW}
    assert played.said == ["workers: all 2 are of this generation already"]
    assert played.renewed is False


def test_what_would_be_started_next_is_put_right_too() -> None:
    """As after an upgrade that ended with its first replacement, and is taken back."""
    played = Played({"o1": NEW, "o2": NEW})
    upgrade(played).run(workers(played))
    assert (played.running, played.renewed) == ({"o1": NEW, "o2": NEW}, True)
    played = Played({"o1": NEW, "o2": NEW}, starts_new=True)
    played.leave(Made(application="a", name="worker", built=None), "o1")
    upgrade(played).run(workers(played))
    assert list(played.running.values()) == [NEW, NEW]


def test_workers_that_drain_do_not_serve() -> None:
    rows = [
        {"worker": "w-1", "draining": False, "replicas": [
            {"task": "digits", "variant": "a", "state": "ready"},
            {"task": "digits", "variant": "b", "state": "loading"},
        ]},
        {"worker": "w-2", "draining": True, "replicas": []},
    ]  # fmt: skip
    plan = {"placements": [{"worker": "w-1", "task": "digits", "variant": "b"}]}
    assert serving(rows, plan) == Serving(
        workers={"w-1": frozenset({("digits", "a")})},
        planned={"w-1": frozenset({("digits", "b")})},
    )


def test_what_one_worker_alone_has_is_known_of_tasks_and_of_variants() -> None:
    a, b, c = ("digits", "a"), ("digits", "b"), ("churn", "c")
    now = Serving(
        workers={"w-1": frozenset({a, b, c}), "w-2": frozenset({a})},
        planned={"w-2": frozenset({a})},
    )
    assert now.tasks_only_of("w-1") == ["churn"]
    assert now.only_of("w-1") == [c, b]
    assert (now.tasks_only_of("w-2"), now.only_of("w-2"), now.of("w-3")) == ([], [], frozenset())
    assert now.has("w-1", frozenset({a, b}))
    assert now.has("w-2", frozenset({a, b}))  # all that the plan puts there
    assert not now.has("w-3", frozenset())


def test_two_at_once_do_not_replace_what_runs(tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(Conflict, match="another"), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass


def test_only_what_began_to_replace_says_what_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Conflict), telling_what_stays():
        raise Conflict("a worker alone answers")
    assert "What was replaced stays" in capsys.readouterr().err
    with pytest.raises(typer.Exit) as ended, telling_what_stays():
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert "Interrupted: what was replaced stays" in capsys.readouterr().err


def test_what_is_stopped_meanwhile_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray ended the command without a word, with the code of a failure."""
    settings = load_settings(state_dir=tmp_path)
    settings.run_dir.mkdir(parents=True)
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock:
        write_state(settings, 7, set())
        ready = settings.run_dir / "ready"
        ready.write_text("7")
        pause = pausing(settings)
        pause(0.0)
        ready.unlink()  # as `modelless down` has it at first
        with pytest.raises(Stopped, match="is being stopped"), telling_what_stays():
            pause(0.0)
        assert capsys.readouterr().err == ""
        pausing(settings)(0.0)  # a full disk may have left no such file
