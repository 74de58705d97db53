"""Alerts on series of metrics that are written here, as Prometheus evaluates them."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_files import DEPLOY
from tests.services import missing

UNANSWERED = "ModellessTaskUnanswered"
GROWS, STANDS = "0+6x60", "40+0x60"


def refused(code: str, task: str = "digits") -> str:
    return f'modelless_errors_total{{task="{task}",code="{code}"}}'


def answered(task: str = "digits") -> str:
    return f'modelless_queries_total{{task="{task}",variant="a",slo_met="true"}}'


def fires_for(tmp_path: Path, alert: str, series: Mapping[str, str], tasks: list[str]) -> None:
    """Check that an alert fires after 30 minutes for these tasks and no others."""
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    [rule] = [one for one in rules if one["alert"] == alert]
    summary = rule["annotations"]["summary"]
    expected = [
        {
            "exp_labels": {"task": task},
            "exp_annotations": {"summary": summary.replace("{{ $labels.task }}", task)},
        }
        for task in tasks
    ]
    said = evaluated(tmp_path, alert, series, expected)
    assert said.returncode == 0, said.stdout + said.stderr


def fires(
    tmp_path: Path, alert: str, series: Mapping[str, str], *expected: tuple[dict[str, str], str]
) -> None:
    """Check that an alert fires after 30 minutes with these labels and summaries and no others."""
    alerts = [
        {"exp_labels": labels, "exp_annotations": {"summary": summary}}
        for labels, summary in expected
    ]
    said = evaluated(tmp_path, alert, series, alerts)
    assert said.returncode == 0, said.stdout + said.stderr


def evaluated(
    tmp_path: Path, alert: str, series: Mapping[str, str], expected: list[dict[str, Any]]
) -> subprocess.CompletedProcess[str]:
    """What promtool says of these alerts after 30 minutes of these series."""
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool")
    case: dict[str, Any] = {
        "rule_files": [str(DEPLOY / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": one} for name, one in series.items()],
                "alert_rule_test": [
                    {"eval_time": "30m", "alertname": alert, "exp_alerts": expected}
                ],
            }
        ],
    }
    file = tmp_path / "case.yml"
    file.write_text(yaml.safe_dump(case))
    return subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("code", ["NO_WORKERS", "COLD", "ARTIFACT_INVALID", "SLO_INFEASIBLE"])
def test_a_task_is_told_that_nothing_answers(tmp_path: Path, code: str) -> None:
    letters = {refused(code, "letters"): GROWS, answered("letters"): GROWS}
    fires_for(tmp_path, UNANSWERED, {refused(code): GROWS, **letters}, ["digits"])


def loaded(task: str = "digits") -> str:
    return f'modelless_replicas{{task="{task}",variant="a",state="ready"}}'


def test_clients_that_ask_for_too_much_are_no_sign_that_nothing_answers(tmp_path: Path) -> None:
    """Of digits something is loaded, of letters nothing is: it has no live version."""
    series = {
        refused("SLO_INFEASIBLE"): GROWS, loaded(): "2+0x60",
        refused("SLO_INFEASIBLE", "letters"): GROWS,
    }  # fmt: skip
    fires_for(tmp_path, UNANSWERED, series, ["letters"])


@pytest.mark.parametrize("code", ["NO_WORKERS", "ARTIFACT_INVALID"])
def test_what_is_loaded_and_answers_nothing_is_told(tmp_path: Path, code: str) -> None:
    fires_for(tmp_path, UNANSWERED, {refused(code): GROWS, loaded(): "2+0x60"}, ["digits"])


def test_a_task_that_was_answered_before_is_told_as_well(tmp_path: Path) -> None:
    series = {refused("NO_WORKERS"): GROWS, answered(): STANDS}
    fires_for(tmp_path, UNANSWERED, series, ["digits"])


def test_a_task_that_nobody_asks_for_is_not_told(tmp_path: Path) -> None:
    series = {refused("NO_WORKERS"): STANDS, answered(): STANDS}
    fires_for(tmp_path, UNANSWERED, series, [])


def test_wrong_queries_are_no_sign_that_nothing_answers(tmp_path: Path) -> None:
    fires_for(tmp_path, UNANSWERED, {refused("INVALID_INPUT"): GROWS}, [])


def disk(what: str, host: str) -> str:
    return f'modelless_disk_{what}_bytes{{of="state",host="{host}"}}'


def test_a_disk_that_is_nearly_full_is_told_and_a_small_one_with_room_is_not(
    tmp_path: Path,
) -> None:
    mib = 2**20
    series = {
        disk("free", "h1"): f"{900 * mib}+0x60", disk("size", "h1"): f"{102_400 * mib}+0x60",
        disk("free", "h2"): f"{900 * mib}+0x60", disk("size", "h2"): f"{4_096 * mib}+0x60",
    }  # fmt: skip
    summary = "the disk of state on h1 has 900MiB free"
    fires(tmp_path, "ModellessDiskNearlyFull", series, ({"of": "state", "host": "h1"}, summary))


def test_a_catalog_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    summary = "the catalog cannot be written: queries go on, plans and registrations are not kept"
    alert = "ModellessCatalogUnwritable"
    fires(tmp_path, alert, {"modelless_catalog_writable": "0+0x60"}, ({}, summary))
    fires(tmp_path, alert, {"modelless_catalog_writable": "1+0x60"})


STOPPED = "the control loop does not turn: lost workers stay lost, plans do not follow the demand"
UP = 'up{job="modelless",instance="g1"}'


def test_a_control_loop_that_does_not_turn_is_told(tmp_path: Path) -> None:
    age = 'modelless_tick_age_seconds{job="modelless",instance="g1"}'
    alert = "ModellessControlLoopStopped"
    told: tuple[dict[str, str], str] = ({}, STOPPED)
    fires(tmp_path, alert, {age: "0+60x60", UP: "1+0x60"}, told)
    fires(tmp_path, alert, {age: "1+0x60", UP: "1+0x60"})


def test_a_control_loop_that_never_told_of_itself_is_told_where_a_gateway_runs(
    tmp_path: Path,
) -> None:
    alert = "ModellessControlLoopStopped"
    fires(tmp_path, alert, {UP: "1+0x60"}, ({}, STOPPED))
    fires(tmp_path, alert, {UP: "0+0x60"})


def test_a_variant_in_quarantine_is_told(tmp_path: Path) -> None:
    series = {'modelless_replicas{task="digits",variant="a",state="quarantined"}': "1+0x60"}
    summary = "a of digits failed or crashed workers, and is kept out"
    labels = {"task": "digits", "variant": "a"}
    fires(tmp_path, "ModellessVariantQuarantined", series, (labels, summary))
