"""Profiles that are ten times off, in a running system: found out whether they refuse or admit.

In the end the profiles are as they were.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from controlplane.settings import load_settings
from tests.integration.deployment import Answer, Deployment
from variants.catalog.sql import open_catalog
from variants.types import Profile

pytestmark = pytest.mark.integration

TIMES = 10.0
SLOWEST_S = 60.0
"""A few turns of the control loop, and a moment in which the worker is idle."""


@pytest.fixture
def measured(digits: Deployment) -> Iterator[dict[str, Profile]]:
    """Profiles by variant."""
    with closing(catalog(digits)) as opened:
        found = {str(profile.variant): profile for profile in opened.snapshot().profiles}
        yield found
        opened.put_profiles(tuple(found.values()), ())


def catalog(digits: Deployment) -> Any:
    return open_catalog(load_settings(state_dir=digits.state_dir).catalog_url)


def times_as_long(profile: Profile, times: float, mark: str) -> Profile:
    points = tuple(
        replace(
            point,
            p50_ms=point.p50_ms * times,
            p95_ms=point.p95_ms * times,
            p99_ms=point.p99_ms * times,
        )
        for point in profile.points
    )
    return replace(profile, points=points, measured_at=mark)


def largest(measured: dict[str, Profile]) -> Profile:
    """Of the variant that takes longest: what waking up takes is little beside it."""
    return max(measured.values(), key=lambda profile: profile.points[0].p50_ms)


def ask(digits: Deployment, latency_ms: float, **pin: str) -> Answer:
    return digits.query([[0.0] * 64], slo={"latency_ms": latency_ms}, **pin)


@pytest.mark.campaign
def test_ten_times_too_slow(digits: Deployment, measured: dict[str, Profile]) -> None:
    """All that is asked is what the false profile refuses."""
    true = largest(measured)
    name, slo_ms = str(true.variant), 7.0 * true.points[0].p95_ms
    with closing(catalog(digits)) as opened:
        opened.put_profiles((times_as_long(true, TIMES, "false"),), ())

    def doubted() -> list[str]:
        ask(digits, slo_ms, variant=name)
        return doubts(digits, name)

    digits.until(doubted, "it is to be measured again", SLOWEST_S)
    digits.until(
        lambda: ask(digits, slo_ms, variant=name).status == 200,
        "what the false profile refused is answered",
        SLOWEST_S,
    )


def doubts(digits: Deployment, name: str) -> list[str]:
    """Why the profile of a variant is doubted because of a check."""
    listed = digits.get("/v1/events?limit=1000")["events"]
    return [
        event["message"]
        for event in listed
        if event["kind"] == "profile_doubted"
        and event["subject"] == f"digits/{name}"
        and "its profile says" in event["message"]
    ]


def test_ten_times_too_quick(digits: Deployment, measured: dict[str, Profile]) -> None:
    """By medians: on a machine that was busy, half of a 95th percentile may be enough later."""
    true = largest(measured)
    name, slo_ms = str(true.variant), true.points[0].p50_ms / 2
    points = tuple(replace(one, p95_ms=one.p50_ms, p99_ms=one.p50_ms) for one in true.points)
    with closing(catalog(digits)) as opened:
        false = times_as_long(replace(true, points=points), 1 / TIMES, "false")
        opened.put_profiles((false,), ())
    digits.until(
        lambda: ask(digits, slo_ms, variant=name).status != 422, "the false profile is known"
    )
    digits.until(
        lambda: ask(digits, slo_ms, variant=name).body.get("code") == "SLO_INFEASIBLE",
        "no query is admitted that would be late",
        SLOWEST_S,
    )
