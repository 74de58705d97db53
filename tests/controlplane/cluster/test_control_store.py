"""What is said when Ray's control store dies and when it is back; whether something listens."""

import socket
from pathlib import Path

from controlplane.cluster.control_store import BACK, DIED_HERE, ControlStoreWatch
from controlplane.cluster.ray_processes import answers


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


def test_something_listens_at_an_address_or_on_a_socket(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert answers(address)
    assert not answers(address)
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)
        assert answers(path)
    assert not answers(path)
    assert not answers(str(tmp_path / "none"))
