"""One machine measures while it serves: what no query needs, and what has become stale."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.machine import machine_kinds
from controlplane.settings import load_settings
from tests.integration import uneven
from tests.integration.deployment import (
    Deployment,
    all_measured,
    deployed,
    short_directory,
)
from variants.catalog.sql import open_catalog
from variants.types import LatencyPoint, Profile

pytestmark = pytest.mark.integration

ROW = [[0.0] * uneven.WIDTH]
BEST, QUICK, ONLY, KNOWN = (f"{model}-v1-echo-fp32" for model in ("best", "quick", "only", "known"))
FALSE_MS = 7.0


@pytest.fixture(scope="module")
def running() -> Iterator[Deployment]:
    """Three tasks: of two nothing is measured, the third has a profile of another processor."""
    with short_directory() as home:
        state = home / "s"
        state.mkdir()
        uneven.register(
            state, "two", {"best": (0.99, 2.0, 0.0), "quick": (0.9, 1.0, 0.0)}, runtime="echo"
        )
        uneven.register(state, "one", {"only": (0.9, 1.0, 0.0)}, runtime="echo")
        uneven.register(state, "stale", {"known": (0.9, 1.0, 0.0)}, runtime="echo")
        _add_stale(state)
        with deployed(state, measured=False) as deployment:
            yield deployment


def _add_stale(state: Path) -> None:
    settings = load_settings(state_dir=state)
    (kind,) = machine_kinds(settings)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        variant = next(v for v in catalog.snapshot().variants if v.name == KNOWN)
        point = LatencyPoint(batch_size=1, p50_ms=FALSE_MS, p95_ms=FALSE_MS, p99_ms=FALSE_MS)
        profile = Profile(
            task=variant.task, variant=variant.name, device_kind=kind.name, points=(point,),
            memory_mib=1.0, load_s=0.1, measured_at="2025-01-01T00:00:00+00:00",
            host="Another processor; 1 cores; Linux 6.1",
        )  # fmt: skip
        catalog.put_profiles((profile,), (kind,))


def test_each_task_is_answered_from_the_start_and_the_rest_is_measured_meanwhile(
    running: Deployment,
) -> None:
    for task, variant in (("one", ONLY), ("stale", KNOWN)):
        answer = running.query(ROW, task=task)
        assert (answer.status, answer.body["variant"]) == (200, variant)
    assert running.query(ROW, task="two").status == 200
    first = running.log.partition("Live state")[0]
    assert f"measuring {BEST} on" in first
    assert f"measuring {ONLY} on" in first
    assert QUICK not in first
    assert KNOWN not in first
    assert "2 more are measured while queries are answered" in first

    def told() -> dict[str, str]:
        events = running.get("/v1/events")["events"]
        return {
            one["subject"]: one["message"] for one in events if one["kind"] == "profile_measured"
        }

    running.until(lambda: len(told()) == 2, "both are measured")
    assert "was never measured here" in told()[f"two/{QUICK}"]
    assert "processor Another processor -> " in told()[f"stale/{KNOWN}"]
    rows = {row["variant"]: row for row in running.get("/v1/profiles")["profiles"]}
    assert rows.keys() == {BEST, QUICK, ONLY, KNOWN}
    assert rows[KNOWN]["points"][0]["p50_ms"] < FALSE_MS / 2
    running.until(
        lambda: running.query(ROW, task="two", variant=QUICK).status == 200, "it answers then"
    )
    assert all_measured(running)
