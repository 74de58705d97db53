"""The share of the demand that is planned for a canary."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.canary.demand import CanaryDemand
from planner.types import Demand, Objective
from tests.planner.builders import DIGITS, catalog, profile, variant
from variants.types import (
    Canary,
    CatalogSnapshot,
    DeviceKindName,
    ModelName,
    Stage,
    TaskName,
    VariantName,
)

KINDS = [DeviceKindName("cpu-1")]
CNN = VariantName("cnn")


def known(share: float = 0.1, *, canary_ms: float = 10.0) -> CatalogSnapshot:
    made = catalog(
        [variant("mlp", 0.9), variant("cnn", 0.95)],
        [profile("mlp", 10.0), profile("cnn", canary_ms)],
        stages={"cnn": Stage.CANARY},
    )
    canary = Canary(task=DIGITS, model=ModelName("cnn"), version=1, share=share)
    return replace(made, canaries=(canary,))


def demand(qps: float = 10.0, latency_ms: float = 100.0, **changes: object) -> Demand:
    given: dict[str, object] = {"accuracy": None} | changes
    return Demand(task=DIGITS, latency_ms=latency_ms, qps=qps, **given)  # type: ignore[arg-type]


def divided(catalog: CatalogSnapshot, *demands: Demand) -> tuple[Demand, ...]:
    return CanaryDemand(catalog, KINDS, Objective.COST).divided(demands)


def test_a_share_is_asked_of_the_canary() -> None:
    assert divided(known(), demand()) == (demand(9.0), demand(1.0, variant=CNN))


def test_classes_of_one_deadline_ask_it_together() -> None:
    """Pinned queries are one class, whatever accuracy others asked for; the tightest holds."""
    found = divided(
        known(), demand(slo_ms=120.0), demand(20.0, accuracy=0.9), demand(5.0, variant=CNN)
    )
    assert found == (
        demand(9.0, slo_ms=120.0),
        demand(8.0, variant=CNN, slo_ms=100.0),
        demand(18.0, accuracy=0.9),
    )


def test_what_the_canary_does_not_meet_stays_where_it_is() -> None:
    assert divided(known(canary_ms=80.0), demand(latency_ms=50.0)) == (demand(latency_ms=50.0),)
    assert divided(known(), demand(accuracy=0.99)) == (demand(accuracy=0.99),)
    assert CanaryDemand(known(), [], Objective.COST).divided([demand()]) == (demand(),)


def test_all_of_it_may_be_asked_of_it() -> None:
    assert divided(known(1.0), demand()) == (demand(variant=CNN),)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_other_demand_is_not_touched(share: float) -> None:
    other = replace(demand(), task=TaskName("letters"))
    pinned = demand(variant=VariantName("mlp"))
    assert divided(known(share), other, pinned) == (other, pinned)


@given(
    st.floats(0.001, 1.0),
    st.lists(
        st.builds(
            demand,
            st.floats(0.1, 100.0),
            st.sampled_from([20.0, 50.0, 100.0]),
            accuracy=st.sampled_from([None, 0.9, 0.95]),
        ),
        max_size=6,
    ),
)
def test_rates_add_up_to_what_they_did(share: float, demands: list[Demand]) -> None:
    found = divided(known(share), *demands)
    assert sum(one.qps for one in found) == pytest.approx(sum(one.qps for one in demands))
    of_canary = sum(one.qps for one in found if one.variant == CNN)
    assert of_canary == pytest.approx(share * sum(one.qps for one in demands))
