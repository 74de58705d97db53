"""What is said where a Ray cluster cannot be joined. Ray is not started."""

import socket
from pathlib import Path

import pytest

from controlplane.cluster.ray_processes import not_joined
from controlplane.settings import Settings, load_settings
from tests.ports import free_port

RAY_SAYS = RuntimeError("Failed to connect to Ray cluster")


def settings(tmp_path: Path, address: str) -> Settings:
    return load_settings(state_dir=tmp_path, ray_address=address)


def test_where_nothing_listens_the_address_is_doubted(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert not_joined(settings(tmp_path, address), RAY_SAYS) == (
        f"the Ray cluster at {address} could not be joined: {RAY_SAYS};"
        " nothing listens there: is it the address of `ray start --head`?"
    )


def test_where_something_listens_the_token_is_doubted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        told = not_joined(settings(tmp_path, address), RAY_SAYS)
    assert f"with the token in {tmp_path / 'ray.token'} " in told


@pytest.mark.parametrize("address", ["auto", "ray://head:10001"])
def test_other_addresses_are_told_with_what_ray_says(tmp_path: Path, address: str) -> None:
    assert not_joined(settings(tmp_path, address), RAY_SAYS) == (
        f"the Ray cluster at {address} could not be joined: {RAY_SAYS}"
    )
