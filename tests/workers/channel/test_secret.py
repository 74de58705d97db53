"""The cluster secret: made once, and readable by its owner only."""

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from variants.errors import Forbidden, NotFound
from workers.channel.secret import ensure_secret, read_secret


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


def unlinkable(draft: Path, path: Path) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_a_file_system_without_links_will_do(tmp_path: Path) -> None:
    def ensured(path: Path) -> bytes:
        return ensure_secret(path, link=unlinkable)

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(ensured, [tmp_path / "secret"] * 32))
    assert made == {read_secret(tmp_path / "secret")}
    assert os.listdir(tmp_path) == ["secret"]


def test_a_secret_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(ensure_secret, path, visible_s=60.0)
        time.sleep(0.1)
        path.write_bytes(bytes(32))
        assert read.result(60) == bytes(32)


def test_a_short_secret_that_is_never_finished_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    with pytest.raises(Forbidden, match="too short"):
        ensure_secret(path, visible_s=0.1)
    path.chmod(0o640)
    with pytest.raises(Forbidden, match="mode 0640"):
        ensure_secret(path)


def test_processes_without_a_supervisor_agree_on_one(tmp_path: Path) -> None:
    """As two replicas on two machines do, which start at the same moment."""
    code = (
        "import sys; from workers.channel.secret import ensure_secret as e; "
        "print(e(sys.argv[1]).hex())"
    )
    path = str(tmp_path / "state" / "channel.secret")
    racing = [
        subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    made = {process.communicate(timeout=300)[0].strip() for process in racing}
    assert made == {read_secret(path).hex()}
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
