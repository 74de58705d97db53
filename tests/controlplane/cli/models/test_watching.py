"""``modelless register --watch``: what it tells, and what it refuses at once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml

from controlplane.building.types import Progress, RegistrationRequest, RegistrationResult
from controlplane.cli.outcome import Output
from controlplane.cli.progress import ProgressStyle
from controlplane.cli.watching import watch_versions
from profiler.evaluation.labelled_rows import NAMES
from tests import onnx_models as models
from tests.variants.catalog_builders import registration
from variants.catalog.memory import MemoryCatalog
from variants.errors import InvalidInput
from variants.types import Stage

pytestmark = pytest.mark.slow


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
