"""``modelless runbook``: the page of an alert where only a terminal is at hand."""

import json
from pathlib import Path

import pytest
import yaml

from controlplane.cli.commands.runbook import plain, sections
from tests.controlplane.cli.shell import Shell

ROOT = Path(__file__).parents[4]


def test_each_alert_has_the_command_that_shows_its_page() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]
    alerts = [one for group in groups for one in group["rules"] if "alert" in one]
    assert {one["alert"] for one in alerts} == {one.alert for one in sections()}
    for one in alerts:
        assert one["annotations"]["runbook"] == f"modelless runbook {one['alert']}"
    severities = {one["alert"]: one["labels"]["severity"] for one in alerts}
    assert {one.alert: one.severity for one in sections()} == severities


def test_all_alerts_are_listed_with_what_they_mean(shell: Shell) -> None:
    rows = json.loads(shell("runbook", "-o", "json").out)
    found = {row["alert"]: row["means"] for row in rows}
    assert found["ModellessNearlyFull"] == (
        "The workers could serve less than 1.2 times what is asked now"
    )
    assert not any(means.endswith((".", "\n")) for means in found.values())


@pytest.mark.parametrize("name", ["ModellessCoresShort", "coresshort", "modellesscoresSHORT"])
def test_the_page_of_an_alert_fits_a_terminal(
    shell: Shell, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = shell("runbook", name).out
    assert shown.startswith("ModellessCoresShort\n\n`ticket`. The cores of a machine are short")
    assert max(map(len, shown.splitlines())) <= 60
    assert "\n- A quota of a container: whole cores" in shown


def test_links_are_told_as_what_can_be_typed_or_opened() -> None:
    text = "See [ModellessWorkersLost](#modellessworkerslost), [codes](reference/asking.md#codes)."
    assert plain(text, 200) == (
        "See `modelless runbook ModellessWorkersLost`, codes (docs/reference/asking.md#codes).\n"
    )


def test_an_alert_that_is_not_known_is_told_with_the_nearest(shell: Shell) -> None:
    near = shell("runbook", "SloMised")
    assert near.code == 2
    assert near.err.rstrip().endswith("no alert 'SloMised'; did you mean ModellessSloMissed?")
    assert shell("runbook", "zzz").err.rstrip().endswith("`modelless runbook` lists all")
