"""Hypothesis strategies: small snapshots and queries that meet every rule of selection."""

from hypothesis import strategies as st

from planner.types import Snapshot
from tests.planner.builders import catalog, key, kind, profile, query, snapshot, variant, worker
from variants.types import Prefer, Stage

KINDS = ("cpu-1", "cpu-4", "gpu-a")
NAMES = ("a", "b", "c", "d", "e")
EPSILON = 1e-9


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    profiles = [
        profile(
            name,
            draw(st.sampled_from((1.0, 5.0, 10.0, 20.0))),
            kind=on,
            max_batch=draw(st.sampled_from((1, 2, 4))),
            load_s=draw(st.sampled_from((0.0, 0.01, 1.0))),
            energy_j=draw(st.sampled_from((None, 0.1, 0.5, 2.0))),
        )
        for name in names
        for on in draw(st.lists(st.sampled_from(KINDS), unique=True, max_size=3))
    ]
    workers = [
        (
            worker(
                f"w{index}",
                kind=draw(st.sampled_from(KINDS)),
                busy_ms=draw(st.sampled_from((-50.0, 0.0, 5.0, 200.0))),
                free_mib=draw(st.sampled_from((0.0, 500.0))),
                draining=draw(st.sampled_from((False, False, False, True))),
            ),
            [key(name) for name in draw(st.lists(st.sampled_from(NAMES), unique=True))],
        )
        for index in range(draw(st.integers(0, 4)))
    ]
    return snapshot(
        catalog(
            [variant(name, draw(st.sampled_from((0.8, 0.9, 0.9001, 0.95)))) for name in names],
            profiles,
            kinds=[kind(on, price) for on, price in zip(KINDS, (0.36, 1.44, 3.6), strict=True)],
            stages={
                name: draw(st.sampled_from((Stage.LIVE, Stage.LIVE, Stage.CANARY, Stage.RETIRED)))
                for name in names
            },
        ),
        *workers,
    )


queries = st.builds(
    query,
    st.sampled_from((3.0, 12.0, 30.0, 100.0, 2_000.0)),
    rows=st.integers(1, 5),
    spent_ms=st.sampled_from((0.0, 0.0, 5.0, 100.0)),
    accuracy=st.sampled_from((None, 0.8, 0.90005, 0.95, 0.99)),
    cost=st.sampled_from((None, 0.0001, 0.001, 0.01)),
    prefer=st.sampled_from(Prefer),
    best_effort=st.booleans(),
    variant=st.sampled_from((None, None, None, *NAMES)),
    draw=st.integers(0, 2**32 - 1),
    avoid=st.sampled_from((None, None, "w0")),
)
