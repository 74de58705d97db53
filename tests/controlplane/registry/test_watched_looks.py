"""When a version of a watched folder is ready to be registered, and what is told of it."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.registry.watch import (
    File,
    Files,
    Listing,
    Memory,
    Notice,
    WatchEvent,
    begin,
    failed,
    look,
    registered,
)
from variants.errors import InvalidArtifact, ModellessError, StateUnavailable

REFUSED = InvalidArtifact("is no model")
BUSY = StateUnavailable("the database is gone")


def model(size: int = 100, *, at: int = 1) -> Files:
    """A version that is one model file."""
    return (File("model.onnx", size, at),)


def ready(*looks: Listing) -> list[tuple[str, ...]]:
    """What is ready at each of these looks, and registered at once."""
    memory: Memory = {}
    found = []
    for now in looks:
        looked = look(memory, now)
        memory = looked.memory
        for name in looked.ready:
            memory = registered(memory, name)
        found.append(looked.ready)
    return found


def test_a_version_is_taken_at_the_second_look_that_sees_it_the_same() -> None:
    assert ready({"1": model()}, {"1": model()}, {"1": model()}) == [(), ("1",), ()]


def test_a_version_that_is_being_copied_is_left_alone() -> None:
    sizes = (10, 20, 30, 30)
    assert ready(*({"1": model(size)} for size in sizes)) == [(), (), (), ("1",)]


def test_a_file_that_is_written_over_in_place_is_still_changing() -> None:
    assert ready(*({"1": model(at=at)} for at in (1, 2, 2))) == [(), (), ("1",)]


def test_a_folder_without_a_model_is_waited_for() -> None:
    notes = (File("notes.txt", 1, 1),)
    both = (*model(), *notes)
    assert ready({"1": ()}, {"1": ()}, {"1": notes}, {"1": notes}, {"1": both}, {"1": both}) == [
        (), (), (), (), (), ("1",),
    ]  # fmt: skip


def test_what_is_no_folder_is_taken_to_be_refused() -> None:
    file = (File("", 5, 1),)
    assert ready({"1": file}, {"1": file}) == [(), ("1",)]


def test_versions_are_taken_by_number() -> None:
    now = {name: model() for name in ("10", "9", "1.0", "07")}
    assert ready(now, now)[1] == ("07", "9", "10", "1.0")


def test_versions_of_the_catalog_are_not_taken_again() -> None:
    now = {"1": model(), "2": model()}
    memory = begin(now, ["1", "7"])
    for _ in range(3):
        looked = look(memory, now)
        memory = looked.memory
    assert looked.ready == ("2",)


def test_a_refused_version_is_tried_again_when_it_has_changed() -> None:
    memory: Memory = {}
    tried = []
    for size in (1, 1, 1, 2, 2, 2):
        looked = look(memory, {"1": model(size)})
        memory = looked.memory
        tried.append(looked.ready)
        for name in looked.ready:
            memory, notice = failed(memory, name, REFUSED)
            assert notice == Notice(
                event=WatchEvent.REFUSED, version="1", text="refused: is no model"
            )
    assert tried == [(), ("1",), (), (), ("1",), ()]


def test_what_may_pass_is_tried_at_every_look_and_told_once() -> None:
    memory = look({}, {"1": model()}).memory
    told = []
    for error in (BUSY, BUSY, StateUnavailable("the disk is full"), BUSY):
        looked = look(memory, {"1": model()})
        assert looked.ready == ("1",)
        memory, notice = failed(looked.memory, "1", error)
        told.append(notice and notice.text)
    assert told == [
        "put off: the database is gone", None, "put off: the disk is full",
        "put off: the database is gone",
    ]  # fmt: skip


def notices(*looks: Listing) -> list[list[WatchEvent]]:
    """What is told at each look, with version 1 in the catalog from the first."""
    memory = begin(looks[0], ["1"])
    found = []
    for now in looks:
        looked = look(memory, now)
        memory = looked.memory
        found.append([notice.event for notice in looked.notices])
    return found


def test_a_version_that_disappears_is_told_once_and_may_come_back() -> None:
    here: Listing = {"1": model()}
    assert notices(here, {}, {}, here, here) == [[], [WatchEvent.GONE], [], [], []]


def test_a_registered_version_that_changes_is_told_once() -> None:
    looks = ({"1": model(size)} for size in (1, 2, 2, 2, 3, 3))
    assert notices(*looks) == [[], [], [WatchEvent.CHANGED], [], [], [WatchEvent.CHANGED]]


FILES = st.sampled_from([(), model(1), model(2), (File("notes.txt", 1, 1),), (File("", 1, 1),)])
LISTINGS = st.lists(
    st.dictionaries(st.sampled_from(["1", "2", "10", "007"]), FILES), min_size=1, max_size=12
)
OUTCOMES = st.lists(st.sampled_from([None, REFUSED, BUSY]), min_size=40, max_size=40)


@settings(max_examples=50, deadline=None)
@given(looks=LISTINGS, outcomes=OUTCOMES)
def test_each_state_of_a_version_is_tried_once_and_only_when_it_is_at_rest(
    looks: list[Listing], outcomes: list[ModellessError | None]
) -> None:
    memory: Memory = {}
    before: Listing = {}
    done: set[str] = set()
    last_refused: dict[str, Files] = {}
    gone: dict[str, int] = {}
    for now in looks:
        looked = look(memory, now)
        memory = looked.memory
        whole = {name for name, files in now.items() if files and files[0].name != "notes.txt"}
        at_rest = {name for name in whole if before.get(name) == now[name]}
        # What is at rest is tried, unless it is registered, or was refused as it is.
        assert set(looked.ready) == {
            name for name in at_rest - done if last_refused.get(name) != now[name]
        }
        assert list(looked.ready) == sorted(looked.ready, key=int)
        for notice in looked.notices:
            if notice.event is WatchEvent.GONE:
                assert notice.version in before.keys() - now.keys()
                gone[notice.version or ""] = gone.get(notice.version or "", 0) + 1
        for name in looked.ready:
            outcome = outcomes.pop()
            if outcome is None:
                memory = registered(memory, name)
                done.add(name)
            else:
                memory, _ = failed(memory, name, outcome)
                if outcome is REFUSED:
                    last_refused[name] = now[name]
        before = now
    left = [name for old, new in pairwise(looks) for name in old.keys() - new.keys()]
    assert gone == {name: left.count(name) for name in left}
