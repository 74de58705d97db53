"""The cluster secret: made once, readable by nobody else."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from variants.errors import Forbidden, NotFound
from workers.secret import ensure_secret, read_secret


def test_it_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    made = ensure_secret(path)
    assert len(made) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert ensure_secret(path) == made == read_secret(path)
    assert os.listdir(path.parent) == ["secret"]


def test_racing_processes_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(ensure_secret, [tmp_path / "secret"] * 32))
    assert len(made) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    ensure_secret(path)
    path.chmod(mode)
    with pytest.raises(Forbidden, match=f"mode {mode:04o}"):
        read_secret(path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    ensure_secret(tmp_path / "secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(Forbidden, match="cannot be read"):
        read_secret(tmp_path / "link")


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    with pytest.raises(Forbidden, match="too short"):
        read_secret(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no channel secret at"):
        read_secret(tmp_path / "secret")
