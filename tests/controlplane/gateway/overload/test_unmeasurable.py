"""What could not be measured on the kind of the workers that are there is not waited for."""

from dataclasses import replace

import pytest

from tests.controlplane.fleet import eventually
from tests.controlplane.serving import DOUBLE, FAST, KIND, LATE, SLOW, TASK, Served, query
from variants.types import DeviceKindName

pytestmark = pytest.mark.slow


async def test_queries_are_told_what_could_not_be_measured(served: Served) -> None:
    """All but one variant was measured on another kind than that of the worker."""
    live, why = served.gateway.live, "it crashed its trial process (SIGSEGV)"
    wide = replace(KIND, name=DeviceKindName("cpu-9"))
    profiles = served.gateway.catalog.snapshot().profiles
    slow = next(one for one in profiles if one.variant == SLOW)
    served.gateway.catalog.put_profiles((replace(slow, device_kind=wide.name),), (wide,))
    await served.worker("w1", SLOW, device_kind=wide.name)
    needs = {"latency_ms": 30}
    await eventually(lambda: wide.name in served.gateway.path.snapshot.kinds)
    assert (await served.ask(query(1, slo=needs))).error[:2] == (503, "COLD")
    failed = [[TASK.name, name, wide.name, why] for name in (FAST, DOUBLE, LATE)]
    await live.put_controller({"unmeasurable": failed})
    await eventually(lambda: bool(served.gateway.path.snapshot.unmeasurable))
    status, code, error = (await served.ask(query(1, slo=needs))).error
    assert (status, code) == (422, "SLO_INFEASIBLE")
    assert f"could not be measured on cpu-9 ({why}); `modelless profile letters {FAST}`" in error
