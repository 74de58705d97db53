"""Alerts on series of metrics that are written here, as Prometheus evaluates them."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.http_errors import CLIENT_ERRORS, STATUS
from tests.deploy.test_files import DEPLOY
from tests.services import missing

SHORT = (
    "the cores of h1 are short, which makes answers late: `modelless status` says what takes them"
)
UNANSWERED = "ModellessTaskUnanswered"
GROWS, STANDS = "0+6x60", "40+0x60"


def refused(code: str, task: str = "digits") -> str:
    return f'modelless_errors_total{{task="{task}",code="{code}"}}'


def answered(task: str = "digits") -> str:
    return f'modelless_queries_total{{task="{task}",variant="a",slo_met="true"}}'


def rule_of(alert: str) -> dict[str, Any]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    [rule] = [one for group in groups for one in group["rules"] if one.get("alert") == alert]
    found: dict[str, Any] = rule
    return found


def fires_for(tmp_path: Path, alert: str, series: Mapping[str, str], tasks: list[str]) -> None:
    """Check that an alert fires after 30 minutes for these tasks and no others."""
    rule = rule_of(alert)
    summary = rule["annotations"]["summary"]
    expected = [
        {
            "exp_labels": {"task": task, **rule["labels"]},
            "exp_annotations": {
                "summary": summary.replace("{{ $labels.task }}", task),
                "runbook": f"modelless runbook {alert}",
            },
        }
        for task in tasks
    ]
    said = evaluated(tmp_path, alert, series, expected)
    assert said.returncode == 0, said.stdout + said.stderr


def fires(
    tmp_path: Path,
    alert: str,
    series: Mapping[str, str],
    *expected: tuple[dict[str, str], str],
    after_min: int = 30,
) -> None:
    """Check that an alert fires by then with these labels and summaries and no others."""
    alerts = [
        {
            "exp_labels": labels | rule_of(alert)["labels"],
            "exp_annotations": {"summary": summary, "runbook": f"modelless runbook {alert}"},
        }
        for labels, summary in expected
    ]
    said = evaluated(tmp_path, alert, series, alerts, after_min)
    assert said.returncode == 0, said.stdout + said.stderr


def evaluated(
    tmp_path: Path,
    alert: str,
    series: Mapping[str, str],
    expected: list[dict[str, Any]],
    after_min: int = 30,
) -> subprocess.CompletedProcess[str]:
    """What promtool says of these alerts after so many minutes of these series."""
    case = {"eval_time": f"{after_min}m", "alertname": alert, "exp_alerts": expected}
    return judged(tmp_path, series, alert_rule_test=[case])


def judged(
    tmp_path: Path, series: Mapping[str, str], **cases: list[dict[str, Any]]
) -> subprocess.CompletedProcess[str]:
    """What promtool says of these cases, with these series."""
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool")
    case: dict[str, Any] = {
        "rule_files": [str(DEPLOY / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": one} for name, one in series.items()],
                **cases,
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


WORKERS = 'modelless_workers{kind="cpu-2",draining="false",instance="a:1"}'


def up(instance: str = "a:1") -> str:
    return f'up{{job="modelless",instance="{instance}"}}'


def test_that_no_worker_is_connected_is_told(tmp_path: Path) -> None:
    summary = "no worker is connected to any gateway: no query can be answered"
    series = {up(): "1+0x60", WORKERS: "1x5 stale"}
    fires(tmp_path, "ModellessNoWorkers", series, ({}, summary))
    fires(tmp_path, "ModellessNoWorkers", {up(): "1+0x60", WORKERS: "1+0x60"})


def test_a_gateway_that_is_away_says_nothing_of_workers(tmp_path: Path) -> None:
    series = {up(): "1x5 0x60", WORKERS: "1x5 stale"}
    fires(tmp_path, "ModellessNoWorkers", series)
    away = ({"job": "modelless", "instance": "a:1"}, "a:1 does not answer")
    fires(tmp_path, "ModellessGatewayAway", series, away)


@pytest.mark.parametrize(
    ("count", "words"), [(1, "rule of operators is"), (2, "rules of operators are")]
)
def test_rules_that_are_not_kept_are_counted_in_words(
    tmp_path: Path, count: int, words: str
) -> None:
    summary = f"{count} {words} not kept: `modelless rules list` says why"
    series = {"modelless_rules_not_kept": f"{count}+0x60"}
    fires(tmp_path, "ModellessRulesNotKept", series, ({}, summary))


@pytest.mark.parametrize(
    ("count", "words"), [(1, "worker of cpu-2 is"), (2, "workers of cpu-2 are")]
)
def test_workers_that_are_missing_are_counted_in_words(
    tmp_path: Path, count: int, words: str
) -> None:
    summary = f"{count} {words} wanted, and fewer are connected"
    series = {'modelless_workers_wanted{kind="cpu-2"}': f"{count}+0x60"}
    fires(tmp_path, "ModellessWorkersMissing", series, ({"kind": "cpu-2"}, summary))


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


@pytest.mark.parametrize(("values", "fires_then"), [("1.14+0x60", True), ("1.2+0x60", False)])
def test_workers_that_could_hardly_serve_more(
    tmp_path: Path, values: str, fires_then: bool
) -> None:
    series = {"modelless_headroom": values}
    told = (
        "the workers could serve 1.1 times what is asked now: more workers, or fewer queries, "
        "keep it in time"
    )
    expected: tuple[tuple[dict[str, str], str], ...] = (({}, told),) if fires_then else ()
    fires(tmp_path, "ModellessNearlyFull", series, *expected)


def test_a_certificate_that_ends_soon_is_told(tmp_path: Path) -> None:
    soon, now = "ModellessCertificateEndsSoon", "ModellessCertificateEnds"
    labels = {"instance": "g1"}

    def ends(at_s: int) -> dict[str, str]:
        return {'modelless_certificate_expiry_timestamp_seconds{instance="g1"}': f"{at_s}+0x60"}

    told = (
        "the certificate of g1 ends at 1970-01-05 00:00:00 +0000 UTC: renew it in its place, "
        "gateways take the new one within seconds"
    )
    fires(tmp_path, soon, ends(4 * 86_400), (labels, told))
    fires(tmp_path, soon, ends(9 * 86_400))
    fires(tmp_path, now, ends(4 * 86_400))
    told = (
        "the certificate of g1 ends at 1970-01-01 01:00:00 +0000 UTC, and from then on no client "
        "accepts it"
    )
    fires(tmp_path, now, ends(3_600), (labels, told))


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


def test_a_worker_that_stays_slow_or_silent_is_told(tmp_path: Path) -> None:
    slow, silent = (
        f'modelless_worker_{what}{{worker="w1"}}' for what in ("slowness", "silent_seconds")
    )
    summary = "worker w1 takes 2.5 times as long as others of its kind"
    fires(tmp_path, "ModellessWorkerSlow", {slow: "2.5+0x60"}, ({"worker": "w1"}, summary))
    fires(tmp_path, "ModellessWorkerSlow", {slow: "_x20 2.5+0x40"})
    summary = "worker w1 has said nothing for 1m 30s, and nothing ends it"
    fires(tmp_path, "ModellessWorkerSilent", {silent: "90+0x60"}, ({"worker": "w1"}, summary))
    fires(tmp_path, "ModellessWorkerSilent", {silent: "9+0x60"})


def test_cores_that_stay_short_are_told(tmp_path: Path) -> None:
    alert, label = "ModellessCoresShort", ({"host": "h1"}, SHORT)
    node = 'modelless_node_{}{{host="h1",instance="{}"}}'.format

    def told(**values: float) -> dict[str, str]:
        found = {"cores": 2.0, "cores_busy": 0.5} | values
        return {node(name, one): f"{value}+0x60" for name, value in found.items() for one in "ab"}

    crowded = {"cores_waited_ratio": 0.63, "cores_busy": 1.9}
    fires(tmp_path, alert, told(**crowded), label)
    fires(tmp_path, alert, told(**crowded | {"cores_busy": 1.7}))
    fires(tmp_path, alert, told(**crowded | {"cores_busy": 1.7, "cores_stolen": 0.15}), label)
    ours = {"cores_waited_ratio": 0.99, "cores_busy": 1.7, "cores_delayed_ratio": 0.9}
    fires(tmp_path, alert, told(**ours), label)
    fires(tmp_path, alert, told(**ours | {"cores_waited_ratio": 0.4}))
    fires(tmp_path, alert, told(cores_waited_ratio=0.4, cores_busy=2.0))
    fires(tmp_path, alert, told(cores_throttled_ratio=0.2), label)
    fires(tmp_path, alert, told(cores_stolen=0.3), label)
    brief = told(cores_busy=2.0) | {node("cores_waited_ratio", "a"): "0.1+0x22 0.63+0x40"}
    fires(tmp_path, alert, brief)


def test_connections_that_are_refused_for_long_are_told(tmp_path: Path) -> None:
    alert = "ModellessConnectionsRefused"
    labels = {"instance": "a", "protocol": "http", "code": "OVERLOADED"}
    series = 'modelless_connections_refused_total{instance="a",protocol="http",code="OVERLOADED"}'
    summary = (
        "connections of http to a are refused (OVERLOADED): more are wanted than"
        " MODELLESS_MAX_CONNECTIONS, MODELLESS_MAX_CONNECTIONS_PER_ADDRESS or the limit on open"
        " files allow"
    )
    fires(tmp_path, alert, {series: "0+6x60"}, (labels, summary))
    fires(tmp_path, alert, {series: "0x20 40+0x60"})
    fires(tmp_path, alert, {series: "0x60"})


def test_workers_that_are_lost_again_and_again_are_told(tmp_path: Path) -> None:
    """Of two gateways that say the same, not twice as many."""
    lost = 'modelless_events_total{{kind="worker_lost",instance="{}"}}'
    many = {lost.format(gateway): "0 1 2 3 4+0x60" for gateway in "ab"}
    summary = (
        "4 workers were lost within half an hour: `modelless events list --kind worker_lost` says"
        " how each ended"
    )
    fires(tmp_path, "ModellessWorkersLost", many, ({}, summary))
    fires(tmp_path, "ModellessWorkersLost", {lost.format(one): "0 1 2+0x60" for one in "ab"})


# -- SLOs that are missed -----------------------------------------------------------------------

CODES = {code for code in STATUS if code not in CLIENT_ERRORS} - {"SLO_INFEASIBLE"}


def outcomes(
    met: float = 0, late: float = 0, infeasible: float = 0, blocked: float = 0, **errors: float
) -> dict[str, str]:
    """What a gateway counts of digits, each so many times a minute; of each error that may be."""

    def counted(name: str, labels: str, a_minute: float) -> tuple[str, str]:
        labels = f'task="digits"{"," if labels else ""}{labels}'
        return f"modelless_{name}_total{{{labels}}}", f"0+{a_minute}x60"

    return dict(
        (
            counted("queries", 'variant="a",slo_met="true"', met),
            counted("queries", 'variant="a",slo_met="false"', late + infeasible),
            counted("queries_infeasible", "", infeasible),
            counted("queries_blocked", "", blocked),
            *(counted("errors", f'code="{code}"', errors.get(code, 0)) for code in sorted(CODES)),
        )
    )


def test_the_rules_count_as_missed_what_the_slo_report_counts() -> None:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    missed = [
        rule["expr"]
        for group in groups
        for rule in group["rules"]
        if rule.get("record", "").startswith("task:modelless_queries_missed:")
    ]
    assert len(missed) == 5
    for text in missed:
        [codes] = re.findall(r'code=~"([^"]*)"', text)
        assert set(codes.split("|")) == CODES


@pytest.mark.parametrize(
    ("series", "share"),
    [
        (outcomes(met=60, late=20, DEADLINE_EXCEEDED=10, OVERLOADED=10), 0.6),
        (outcomes(met=60, infeasible=40), 1.0),
        (outcomes(met=60, blocked=60), 0.5),
        (outcomes(NO_WORKERS=10), 0.0),
    ],
)
def test_the_share_that_met_its_slo_is_recorded(
    tmp_path: Path, series: Mapping[str, str], share: float
) -> None:
    said = judged(
        tmp_path,
        series,
        promql_expr_test=[
            {
                "expr": "round(task:modelless_queries_share_met:ratio5m, 0.001)",
                "eval_time": "30m",
                "exp_samples": [{"labels": '{task="digits"}', "value": share}],
            }
        ],
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_a_task_without_an_answer_has_its_share_too(tmp_path: Path) -> None:
    series = {name: one for name, one in outcomes(COLD=10).items() if "queries_total" not in name}
    summary = rule_of(UNANSWERED)["annotations"]["summary"]
    summary = summary.replace("{{ $labels.task }}", "digits")
    fires(tmp_path, UNANSWERED, series, ({"task": "digits"}, summary))


SLO_MISSED = "ModellessSloMissed"


def missed_words(count: int) -> str:
    words = rule_of(SLO_MISSED)["annotations"]["summary"]
    return re.sub(r"{{ \$value.*?}}", str(count), words).replace("{{ $labels.task }}", "digits")


def test_queries_that_are_never_answered_miss_their_slo(tmp_path: Path) -> None:
    series = outcomes(met=80, DEADLINE_EXCEEDED=20)
    fires(tmp_path, SLO_MISSED, series, ({"task": "digits"}, missed_words(600)))


@pytest.mark.parametrize(
    "series",
    [
        outcomes(met=95, DEADLINE_EXCEEDED=5),  # five times the budget: a ticket's
        outcomes(met=80, infeasible=20),  # nothing could have met it
        outcomes(met=0.1, DEADLINE_EXCEEDED=0.2),  # six in half an hour
    ],
)
def test_few_misses_wake_nobody(tmp_path: Path, series: Mapping[str, str]) -> None:
    fires(tmp_path, SLO_MISSED, series)


def test_a_page_ends_soon_after_the_misses(tmp_path: Path) -> None:
    late = 'modelless_errors_total{task="digits",code="DEADLINE_EXCEEDED"}'
    series = {**outcomes(met=80), late: "0+80x20 1600+0x40"}
    fires(tmp_path, SLO_MISSED, series, ({"task": "digits"}, missed_words(1600)), after_min=22)
    fires(tmp_path, SLO_MISSED, series, after_min=55)


def test_a_budget_that_will_be_spent_is_a_ticket(tmp_path: Path) -> None:
    alert = "ModellessSloBudgetSpent"
    text = rule_of(alert)["annotations"]["summary"].replace("{{ $labels.task }}", "digits")
    fires(tmp_path, alert, outcomes(met=98, OVERLOADED=2), ({"task": "digits"}, text))
    fires(tmp_path, alert, outcomes(met=995, OVERLOADED=5))


@pytest.mark.parametrize(
    ("code", "a_minute", "share"),
    [("NO_WORKERS", 3, "3%"), ("OVERLOADED", 3, None), ("OVERLOADED", 10, "10%"),
     ("NO_WORKERS", 1, None), ("RATE_LIMITED", 50, None)],
)  # fmt: skip
def test_queries_that_fail_are_told_by_share_and_code(
    tmp_path: Path, code: str, a_minute: float, share: str | None
) -> None:
    series = outcomes(met=100 - a_minute, **{code: a_minute})
    told: list[tuple[dict[str, str], str]] = [
        ({"task": "digits", "code": code}, f"{share} of the queries of digits end in {code}")
    ]
    fires(tmp_path, "ModellessQueriesFail", series, *(told if share else []))


@pytest.mark.parametrize(("gone", "share"), [(20, "20%"), (8, ""), (2, "")])
def test_clients_that_do_not_wait_are_told(tmp_path: Path, gone: int, share: str) -> None:
    """Where they are more than one in ten, and not a few."""
    series = outcomes(met=80 if gone > 2 else 1) | {refused("CLIENT_GONE"): f"0+{gone}x60"}
    text = f"the clients of {share} of the queries of digits do not wait for the answer"
    told: list[tuple[dict[str, str], str]] = [({"task": "digits"}, text)] if share else []
    fires(tmp_path, "ModellessClientsGiveUp", series, *told, after_min=45)


def test_one_internal_error_is_one_too_many(tmp_path: Path) -> None:
    alert = "ModellessInternalErrors"
    text = rule_of(alert)["annotations"]["summary"].replace("{{ $labels.task }}", "digits")
    internal = refused("INTERNAL")
    fires(tmp_path, alert, {internal: "0+0x20 1+0x40"}, ({"task": "digits"}, text))
    fires(tmp_path, alert, {internal: "0 1+0x60"})


def test_artifacts_that_stay_damaged_are_told(tmp_path: Path) -> None:
    alert = "ModellessArtifactsInvalid"
    text = rule_of(alert)["annotations"]["summary"].replace("{{ $labels.task }}", "digits")
    fires(tmp_path, alert, {refused("ARTIFACT_INVALID"): GROWS}, ({"task": "digits"}, text))
    repaired = {refused("ARTIFACT_INVALID"): "0+0x20 6+0x40"}
    fires(tmp_path, alert, repaired)


def test_answers_that_have_changed_are_told_until_somebody_has_said_something(
    tmp_path: Path,
) -> None:
    """Of two gateways that say the same, once."""
    alert = "ModellessAnswersChanged"
    series = 'modelless_answers_changed{{task="digits",variant="a",instance="{}"}}'
    text = rule_of(alert)["annotations"]["summary"]
    for name, value in (("task", "digits"), ("variant", "a")):
        text = text.replace(f"{{{{ $labels.{name} }}}}", value)
    told = ({"task": "digits", "variant": "a"}, text)
    fires(tmp_path, alert, {series.format(one): "0 1+0x60" for one in "ab"}, told)
    fires(tmp_path, alert, {series.format(one): "0 1+0x25 0+0x40" for one in "ab"})
    fires(tmp_path, alert, {series.format(one): "0+0x60" for one in "ab"})
