"""Watching a folder of versions: what is registered when, and what is told."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.building.types import Progress, RegistrationRequest, RegistrationResult
from controlplane.cli.outcome import Output
from controlplane.cli.progress import ProgressStyle
from controlplane.cli.watching import watch_versions
from controlplane.registry.watch import (
    File,
    Files,
    Listing,
    Memory,
    Notice,
    WatchEvent,
    begin,
    failed,
    listing,
    look,
    registered,
    watch,
)
from profiler.evaluation.labelled_rows import NAMES
from tests import onnx_models as models
from tests.variants.catalog_builders import registration
from variants.catalog.memory import MemoryCatalog
from variants.errors import InvalidArtifact, InvalidInput, ModellessError, StateUnavailable
from variants.types import Stage

pytestmark = pytest.mark.slow

REFUSED = InvalidArtifact("is no model")
BUSY = StateUnavailable("the database is gone")


def model(size: int = 100, *, at: int = 1) -> Files:
    """A version that is one model file."""
    return (File("model.onnx", size, at),)


# -- the decision -------------------------------------------------------------------------------


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


# -- the shell ----------------------------------------------------------------------------------


class Enough(Exception):
    """The test has seen what it wanted."""


@dataclass
class Watched:
    """A folder whose state changes between two looks as a test says."""

    folder: Path
    errors: dict[str, ModellessError] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def run(self, *steps: Callable[[], object], known: tuple[str, ...] = ()) -> None:
        left = list(steps)

        def register(name: str) -> str:
            self.taken.append(name)
            if name in self.errors:
                raise self.errors[name]
            return "registered"

        def wait() -> None:
            if not left:
                raise Enough
            left.pop(0)()

        def tell(notice: Notice) -> None:
            self.told.append(f"{notice.version} {notice.event}")

        with pytest.raises(Enough):
            watch(self.folder, known, register, tell, wait)

    def put(self, name: str, text: str = "model") -> Callable[[], object]:
        def write() -> None:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        return write


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    (tmp_path / "cnn").mkdir()
    return Watched(tmp_path / "cnn")


def nothing() -> None:
    """One more look."""


def test_new_versions_are_registered_in_their_order(watched: Watched) -> None:
    watched.put("3/model.onnx")()

    def two() -> None:
        watched.put("2/model.pt2")()
        watched.put("1/model.onnx")()

    watched.run(nothing, two, nothing, nothing, known=())
    assert watched.taken == ["3", "1", "2"]
    assert watched.told == [
        "3 found", "3 registered", "1 found", "2 found", "1 registered", "2 registered",
    ]  # fmt: skip


def test_a_bad_version_stops_no_other(watched: Watched) -> None:
    watched.errors["1"] = REFUSED
    watched.run(watched.put("1/model.onnx"), watched.put("2/model.onnx"), nothing, nothing)
    assert watched.taken == ["1", "2"]
    assert watched.told == ["1 found", "2 found", "1 refused", "2 registered"]


def test_a_folder_that_cannot_be_read_for_a_while_is_told_once(watched: Watched) -> None:
    away = watched.folder.with_name("away")

    def leave() -> None:
        watched.folder.rename(away)

    def come_back() -> None:
        away.rename(watched.folder)

    watched.put("1/model.onnx")()
    watched.run(leave, nothing, come_back, nothing, leave, known=("1",))
    assert watched.told == ["None unreadable", "None unreadable"]
    assert watched.taken == []


def test_a_folder_that_is_not_there_at_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArtifact, match="none cannot be read"):
        Watched(tmp_path / "none").run()


def test_the_listing_follows_no_link(watched: Watched) -> None:
    watched.put("1/model.onnx", "12345")()
    (watched.folder / "2").symlink_to(watched.folder / "1")
    (watched.folder / "1" / "other.onnx").symlink_to("nowhere")
    found = listing(watched.folder)
    assert [(file.name, file.size_bytes) for file in found["1"]] == [
        ("model.onnx", 5), ("other.onnx", len("nowhere")),
    ]  # fmt: skip
    assert [file.name for file in found["2"]] == [""]


# -- the command --------------------------------------------------------------------------------


def test_it_tells_each_event_in_a_line_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    models.write_rows(tmp_path / "rows.npz")
    (tmp_path / "cnn" / "4").mkdir(parents=True)
    (tmp_path / "cnn" / "4" / "model.onnx").write_text("no model")
    environment = {n: v for n, v in os.environ.items() if not n.startswith("MODELLESS_")}
    with subprocess.Popen(
        [
            sys.executable, "-m", "controlplane.cli.main", "register", str(tmp_path / "cnn"),
            "--task", "shapes", "--eval", str(tmp_path / "rows.npz"),
            "--watch", "--interval", "0.05",
        ],
        env=environment | {"MODELLESS_STATE_DIR": str(tmp_path / "state"), "MODELLESS_CORES": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        lines = [child.stdout.readline(), child.stdout.readline()]
        child.send_signal(signal.SIGINT)
        rest, errors = child.communicate()
    assert [line[13:-1] for line in lines] == [
        "cnn-v4: found; it is taken when it is whole",
        "cnn-v4: refused: model.onnx is not an ONNX model, or only a part of one",
    ]
    assert (rest, child.returncode) == ("", 130)
    assert errors.splitlines() == [
        f"watching {tmp_path / 'cnn'} every 0.05 s; registered versions of cnn: none; "
        "Ctrl-C ends it",
        "stopped watching: 0 versions were registered",
    ]


@dataclass
class Registered:
    """Registers what it is asked to, at once, and is interrupted at the version ``until``."""

    catalog: MemoryCatalog
    until: str
    asked: list[RegistrationRequest] = field(default_factory=list)

    def __call__(
        self, request: RegistrationRequest, show: Callable[[Progress], None]
    ) -> RegistrationResult:
        if request.only == self.until:
            raise KeyboardInterrupt
        self.asked.append(request)
        made = registration("cnn", int(request.only or 0))
        self.catalog.register(made)
        return RegistrationResult(
            task=made.task, versions=(made.version,), variants=made.variants, profiles=()
        )


@pytest.fixture
def request_(tmp_path: Path) -> RegistrationRequest:
    """For a folder with versions 1, 2 and 3."""
    for number in "123":
        (tmp_path / "cnn" / number).mkdir(parents=True)
        (tmp_path / "cnn" / number / "model.onnx").write_text(number)
    pixels, labels = np.zeros((20, 64), np.float32), np.zeros(20, np.int64)
    np.savez(tmp_path / "rows.npz", pixels=pixels, labels=labels)
    return RegistrationRequest(
        path=tmp_path / "cnn", task="digits", evaluation=tmp_path / "rows.npz"
    )


def interrupted(request: RegistrationRequest, register: Registered, output: Output) -> int:
    """The exit code of a watch."""
    with pytest.raises(typer.Exit) as exit_:
        watch_versions(request, register.catalog, register, 0.01, output, ProgressStyle.AUTO)
    return int(exit_.value.exit_code)


def test_a_new_version_is_registered_alone_and_as_a_candidate(
    request_: RegistrationRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = MemoryCatalog()
    catalog.register(registration("cnn", 1))
    register = Registered(catalog, until="3")
    assert interrupted(request_, register, Output.JSON) == 130
    assert register.asked == [replace(request_, only="2", stage=Stage.CANDIDATE)]
    shown = capsys.readouterr()
    events = [json.loads(line) for line in shown.out.splitlines()]
    assert [(event["version"], event["event"]) for event in events] == [
        ("2", "found"), ("3", "found"), ("2", "registered"),
    ]  # fmt: skip
    assert shown.err.splitlines() == [
        f"watching {request_.path} every 0.01 s; registered versions of cnn: 1; Ctrl-C ends it",
        "stopped watching: 1 version was registered; cnn-v3, which was in work, is not",
    ]


def test_a_stage_that_is_asked_for_is_kept_and_yaml_is_a_list(
    request_: RegistrationRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    register = Registered(MemoryCatalog(), until="2")
    assert interrupted(replace(request_, stage=Stage.LIVE), register, Output.YAML) == 130
    assert [(one.only, one.stage) for one in register.asked] == [("1", Stage.LIVE)]
    events = yaml.safe_load(capsys.readouterr().out)
    assert [event["event"] for event in events] == ["found", "found", "found", "registered"]


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("cnn", "cnn: --watch needs a folder of numbered versions"),
        ("rows.npz", "rows.npz cannot be read: No such file or directory"),
    ],
)
def test_what_could_never_be_watched_is_refused_at_once(
    request_: RegistrationRequest, missing: str, sentence: str
) -> None:
    away = request_.path.parent / missing
    away.rename(away.with_name("away"))
    register = Registered(MemoryCatalog(), until="1")
    with pytest.raises(InvalidInput) as refusal:
        watch_versions(request_, register.catalog, register, 0.01, Output.TABLE, ProgressStyle.AUTO)
    assert refusal.value.message == sentence


@pytest.mark.parametrize("option", ["evaluation", "calibration", "training"])
@pytest.mark.parametrize(
    ("arrays", "known", "sentence"),
    [
        (None, False, "other.npz is not an .npz file, or is damaged; numpy.savez writes one"),
        ({"labels": np.arange(3)}, False, "other.npz lacks an array of inputs; it has labels"),
        ({"x": np.zeros(3)}, True, f"other.npz lacks the array 'pixels'; it has x: {NAMES}"),
        (
            {"pixels": np.zeros((3, 5)), "labels": np.arange(3)},
            True,
            "other.npz: array 'pixels' has shape (3, 5), not (rows, 64)",
        ),
    ],
)
def test_rows_that_would_refuse_every_version_are_refused_at_once(
    request_: RegistrationRequest,
    option: str,
    arrays: dict[str, Any] | None,
    known: bool,
    sentence: str,
) -> None:
    path = request_.path.parent / "other.npz"
    if arrays is None:
        path.write_text("no rows")
    else:
        np.savez(path, **arrays)
    register = Registered(MemoryCatalog(), until="1")
    if known:
        register.catalog.register(registration("cnn", 1))
    changed: dict[str, Any] = {option: path}
    asked = replace(request_, **changed)
    with pytest.raises(InvalidInput) as refusal:
        watch_versions(asked, register.catalog, register, 0.01, Output.TABLE, ProgressStyle.AUTO)
    assert refusal.value.message == sentence
