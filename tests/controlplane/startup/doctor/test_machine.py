"""What the doctor says of this machine: Python, packages, memory, cores and replicas."""

import os
import subprocess
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from controlplane import settings as settings_module
from controlplane.settings import Settings, load_settings
from controlplane.startup import settings_warnings
from controlplane.startup.checks import installation, machine, services
from controlplane.startup.checks.finding import Finding, fine, problem
from controlplane.startup.presence import write_state
from controlplane.startup.state_directory import take_lock
from tests.contracts.lengths.test_catalog_texts import texts as text_task
from tests.controlplane.startup.doctor.looked_at import replica
from variants.catalog.sql import open_catalog
from variants.core_time import CoreMeter

pytestmark = pytest.mark.slow


def test_this_python_will_do(settings: Settings) -> None:
    assert [one.ok for one in installation.python(settings)] == [True]


def test_packages_that_import_share_a_line_and_others_say_why_not(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brokenwheel.py").write_text("raise OSError('libcore.so: no such file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    remedy = "install modelless again, in a virtual environment of its own"

    findings = list(installation.packages(settings, ("orjson", "brokenwheel", "nowhere")))

    assert [(one.ok, one.remedy) for one in findings] == [
        (True, ""), (False, remedy), (False, remedy),
    ]  # fmt: skip
    assert findings[0].message.startswith("orjson 3.")
    assert [one.message for one in findings[1:]] == [
        "brokenwheel cannot be imported: OSError: libcore.so: no such file",
        "nowhere cannot be imported: it is not installed",
    ]


def test_memory_is_compared_with_what_workers_may_fill(state_dir: Path) -> None:
    little = load_settings(state_dir=state_dir, worker_memory_mib=1.0)
    much = load_settings(state_dir=state_dir, worker_memory_mib=1e9)

    assert [[one.ok for one in machine.memory(each)] for each in (little, much)] == [
        [True],
        [False],
    ]


@pytest.mark.parametrize(
    ("count", "given", "said"),
    [
        (4, {}, "1 worker of 4 cores"),
        (16, {}, "4 workers of 4 cores"),
        (16, {"workers": 1}, "1 worker of 16 cores"),
        (16, {"cores": 8}, "2 workers of 4 cores"),
        (16, {"slices": "1xcpu-16"}, "1 worker of 16 cores"),
    ],
)
def test_the_workers_that_share_the_cores_are_told(
    monkeypatch: pytest.MonkeyPatch, count: int, given: dict[str, Any], said: str
) -> None:
    for module in (settings_module, settings_warnings):
        monkeypatch.setattr(module, "usable_cores", lambda: count)
    [found] = machine.cores(load_settings(**given))
    assert (found.ok, found.message, found.remedy) == (True, said, "")


def test_texts_need_their_library_where_a_task_takes_any(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = [fine("texts", "no task takes any")]
    assert list(services.texts(settings)) == nothing  # there is no catalog, and none is made
    assert not Path(settings.catalog_url.removeprefix("sqlite:///")).exists()
    settings.state_dir.mkdir(exist_ok=True)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        assert list(services.texts(settings)) == nothing
        catalog.register(text_task())
    [found] = services.texts(settings)
    assert (found.ok, found.message) == (True, f"read by tokenizers {version('tokenizers')}")
    monkeypatch.setattr(services, "import_fault", lambda name: "it is not installed")
    [found] = services.texts(settings)
    assert found == problem(
        "texts",
        "1 task takes texts, and the library tokenizers cannot be imported: it is not installed",
        "pip install 'modelless[text]'",
    )


def test_replicas_that_yield_to_other_programs_are_named(settings: Settings) -> None:
    with replica(15) as pid:
        [finding] = machine.niceness(settings)

    assert not finding.ok
    assert f"{pid} (niceness 15)" in finding.message
    assert "RAY_worker_niceness=0" in finding.remedy


def test_replicas_of_another_installation_do_not_count(settings: Settings) -> None:
    settings.run_dir.mkdir(parents=True)
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock, replica(15), subprocess.Popen(["sleep", "60"]) as other:
        write_state(settings, other.pid, set(), ray="127.0.0.1:1")
        [finding] = machine.niceness(settings)
        other.kill()
    assert (finding.ok, finding.message) == (True, "no gateway or worker runs on this machine")


def test_replicas_below_what_runs_count_whoever_has_started_them(settings: Settings) -> None:
    """Those that are forked from a template have no raylet above them."""
    settings.run_dir.mkdir(parents=True)
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock, replica(0):
        write_state(settings, os.getpid(), set(), ray="127.0.0.1:1")
        [finding] = machine.niceness(settings)
    assert finding.message == "0 in each of 1 gateways and workers on this machine"


def test_only_what_answers_queries_of_ours_is_looked_at() -> None:
    assert machine.answers_queries(["ray::ServeReplica:modelless-worker-cpu-2:worker"])
    assert machine.answers_queries(["ray::ServeReplica:modelless-gateway:gateway"])
    assert not machine.answers_queries(["ray::ServeReplica:modelless-controller:controller"])
    assert not machine.answers_queries(["ray::ServeReplica:theirs:worker"])
    assert not machine.answers_queries([])


def test_cores_that_others_take_are_told(settings: Settings, tmp_path: Path) -> None:
    def taken(of_ten_s: float) -> list[Finding]:
        now_s = [0.0]

        def passes(_: float) -> None:
            now_s[0] += 10.0
            counted(10_000_000 + round(of_ten_s * 1e6), 2_000)

        def counted(waited_us: int, ticks: int) -> None:
            (tmp_path / "pressure").mkdir(exist_ok=True)
            (tmp_path / "pressure" / "cpu").write_text(f"some avg10=0.00 total={waited_us}\n")
            (tmp_path / "stat").write_text(f"cpu0 {ticks} 0 0 0 0 0 0 0 0 0\n")

        counted(10_000_000, 1_000)
        return list(
            machine.taken_cores(
                settings,
                lambda used_s: CoreMeter(
                    proc=tmp_path, own=tmp_path / "none", cores=(0,), host="h1", used_s=used_s,
                    clock_s=lambda: now_s[0],
                ),
                passes,
            )
        )  # fmt: skip

    assert taken(of_ten_s=4.0) == [fine("core time", "something waited for a core in 40 % of 1 s")]
    [found] = taken(of_ten_s=8.0)

    assert (found.name, found.ok) == ("core time", True)
    assert found.message == (
        "80 % of the time something waited for one, gateways and workers use 0.0 of its 1 core, "
        "other programs 1.0"
    )
    assert found.remedy == "stop some of these, or run modelless on another machine"
