"""A cluster that begins without a node for workers, and the only worker's node gets its notice.

See ``growing``.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.integration.clusters.growing import SPOT, Asking, Growing, growing
from tests.integration.deployment import BUSY

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

ONE = f"1x{SPOT}:cores=1:memory_mib=100:nodes=modelless.io/kind={SPOT}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Growing]:
    with growing(slices=ONE, nodes="0") as made:
        yield made


def test_the_start_has_the_first_node_come(cluster: Growing) -> None:
    cluster.until(lambda: cluster.kinds() == [SPOT], "a worker")
    assert cluster.asked() == 200


def test_no_query_is_lost_when_the_node_of_the_only_worker_goes(cluster: Growing) -> None:
    [before] = [one["worker"] for one in cluster.workers()]
    cluster.until(
        lambda: any(SPOT in node["kinds"] for node in cluster.nodes()), "the nodes are seen"
    )
    [spot] = [node for node in cluster.nodes() if SPOT in node["kinds"]]
    asking = Asking(cluster, 5.0)
    cluster.until(lambda: len(asking.ledger()) > 20, "queries")

    cluster.told("nodes", "drain", spot["id"], "--deadline-s=240", "--why=spot notice")

    cluster.until(
        lambda: spot["id"] not in [node["id"] for node in cluster.nodes()], "the node goes"
    )
    answered = len(asking.ledger())
    cluster.until(lambda: len(asking.ledger()) > answered + 40, "queries go on")
    outcomes = Counter(entry.get("outcome", "none") for entry in asking.end())
    assert outcomes.keys() <= {"200", *BUSY}, outcomes
    [after] = [one["worker"] for one in cluster.workers()]
    assert after != before
    told = [one["message"] for one in cluster.events("worker_left")]
    assert told == [f"worker {before} is gone: its node goes"]
