"""What is said when Ray's control store dies and when it is back; whether something listens."""

import socket
from pathlib import Path

import pytest

from controlplane.cluster.processes.control_store import BACK, DIED_HERE, ControlStoreWatch
from controlplane.cluster.processes.named_cluster import answers
from controlplane.cluster.processes.raylet import RayletWatch


def told(looks: str, *, on_cluster: bool = False) -> list[str | None]:
    """What is said at each look: ``+`` is answered, ``-`` is not."""
    results = iter(looks)
    watch = ControlStoreWatch(
        "10.0.0.1:6379", on_cluster=on_cluster, answers=lambda: next(results) == "+"
    )
    return [watch.look() for _ in looks]


def test_a_death_is_told_once_and_not_at_the_first_silence() -> None:
    assert told("+--+----") == [None] * 6 + [DIED_HERE, None]


def test_a_return_is_told() -> None:
    assert told("---+") == [None, None, DIED_HERE, BACK]


def test_on_a_cluster_the_address_is_told() -> None:
    [*_, sentence] = told("---", on_cluster=True)

    assert sentence is not None
    assert sentence.startswith(
        "Ray's control store at 10.0.0.1:6379 does not answer: queries go on"
    )


def test_something_listens_at_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert answers(address)
    assert not answers(address)


def test_one_connection_tells_as_long_as_it_lasts_that_a_raylet_runs(tmp_path: Path) -> None:
    """Each that came and went was a line in its log, one a second."""
    path = str(tmp_path / "raylet")
    watch = RayletWatch(path)
    assert watch.has_ended()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(4)
        server.settimeout(0.0)
        assert not watch.has_ended()
        held, _ = server.accept()
        assert not watch.has_ended()
        with pytest.raises(BlockingIOError):
            server.accept()
        held.close()  # as by a raylet that ends connections of those it does not know
        assert not watch.has_ended()
        held, _ = server.accept()
    held.close()
    assert watch.has_ended()
    watch.close()
