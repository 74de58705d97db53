"""``modelless simulate --instant``: what the eviction rules are worth, by the command itself."""

from pathlib import Path

import pytest

from planner.eviction.registry import RULES
from tests.bench.planning.cache_workloads import Workload, workload
from tests.controlplane.cli.shell import Shell

pytestmark = pytest.mark.slow

CATALOG = "task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s"
DEVICES = "device_kind,count,memory_mib,usd_per_hour"
TRACE = "arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k"


def files(load: Workload, share: float, folder: Path) -> list[str]:
    """Options that name a workload's files: a task for each variant, and one device that holds a
    share of their memory."""
    sizes = list(zip(load.memory_mib, load.load_s, strict=True))
    memory_mib = max(share * sum(load.memory_mib), *load.memory_mib)
    asked = zip(load.arrival_s, load.variant, strict=True)
    texts = {
        "catalog": [
            CATALOG, *(f"t{n},m{n},v{n},0.9,cpu,1,10,{mib},{s}" for n, (mib, s) in enumerate(sizes))
        ],
        "devices": [DEVICES, f"cpu,1,{memory_mib},1"],
        "trace": [TRACE, *(f"{at_s},t{n},1000,," for at_s, n in asked)],
    }  # fmt: skip
    options = []
    for name, lines in texts.items():
        path = folder / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
        options += [f"--{name}", str(path)]
    return options


@pytest.mark.parametrize(
    "kind", ["Zipf 0.9", pytest.param("shifting head", marks=pytest.mark.campaign)]
)
def test_ours_reloads_a_fifth_less_than_lru_and_no_more_than_gdsf(
    kind: str, shell: Shell, tmp_path: Path
) -> None:
    load = workload(kind, "independent", 0, variants=50, queries=4_000, per_s=2.0)
    options = files(load, 0.25, tmp_path)

    seconds = {
        rule: shell("simulate", *options, "--instant", "--eviction", rule, "--json").json()[
            "load_s_total"
        ]
        for rule in RULES
    }

    assert seconds["modelless"] <= 0.8 * seconds["lru"]
    assert seconds["modelless"] <= seconds["gdsf"]
