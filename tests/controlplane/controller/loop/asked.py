"""What several tests of the control loop ask for."""

from collections.abc import Awaitable, Callable
from time import monotonic

from tests.controlplane.fleet import Fleet, eventually

A, B = "a-v1-echo-fp32", "b-v1-echo-fp32"


async def asked(it: Fleet, rows: int, *, tightest_ms: float = 120.0) -> None:
    """What a gateway reports that has been asked for so many rows since it started."""
    key = "digits|100.0|"
    await it.live.put_gateway("g1", {"demand": {key: rows}, "tightest": {key: tightest_ms}})


async def routed(it: Fleet) -> bool:
    plan = it.catalog.latest_plan()
    return plan is not None and plan.routes != ()


async def crowd(it: Fleet, condition: Callable[[], object], *, qps: int) -> None:
    """Report demand until a condition is true."""
    began_s = monotonic()

    async def reached() -> bool:
        await asked(it, int(qps * (monotonic() - began_s)))
        found = condition()
        return bool(await found if isinstance(found, Awaitable) else found)

    await eventually(reached)
