"""From where a process has artifacts: the state directory if it sees it, or else the head."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest

from controlplane.cluster.head import WorkerSupplies, asked, is_home, store_of
from controlplane.settings import Settings, load_settings
from controlplane.startup.checks.services import artifacts
from tests.services import missing
from tests.variants.artifacts.s3_emulator import s3_emulator
from tests.workers.builders import double_model, onnx_spec
from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.store import FileArtifactStore
from variants.errors import Conflict, InvalidInput, StateUnavailable
from workers.channel.secret import ensure_secret, own_digest


def settings(state_dir: Path, ray_address: str = "auto") -> Settings:
    return load_settings(state_dir=state_dir, ray_address=ray_address, database_url="")


def test_one_machine_and_whoever_sees_the_secret_sees_the_files(tmp_path: Path) -> None:
    assert isinstance(store_of(settings(tmp_path / "alone", ray_address="")), FileArtifactStore)
    ensure_secret(tmp_path / "shared" / "channel.secret")
    store = store_of(settings(tmp_path / "shared"))
    assert isinstance(store, FileArtifactStore)
    assert store.root == tmp_path / "shared" / "artifacts"


def test_others_have_copies_and_no_store_that_looks_like_one(tmp_path: Path) -> None:
    apart = settings(tmp_path)
    assert not is_home(apart)
    assert isinstance(store_of(apart), CachedArtifactStore)
    assert (tmp_path / "copies").is_dir()
    assert not (tmp_path / "artifacts").exists()


def test_doctor_says_who_reads_what_is_kept_elsewhere(tmp_path: Path) -> None:
    [head] = artifacts(settings(tmp_path))
    assert (head.ok, head.message) == (
        True,
        "they are kept on the cluster's head; `modelless repair` reads them",
    )
    [bucket] = artifacts(load_settings(state_dir=tmp_path, artifacts_url="s3://models"))
    assert bucket.message == "they are kept at s3://models; `modelless repair` reads them"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://models", "it must be s3://bucket/prefix"),
        ("s3://", "it must be s3://bucket/prefix"),
        ("s3://user:password@models", "without a user"),
        ("s3://:password@models", "without a user"),
        ("s3://models?endpoint=https://user:password@host", "without a user"),
        ("s3://models?endpoint=https://:password%40host", "without a user"),
        ("s3://models?endpoint=https://u:password@a&endpoint=https://b", "without a user"),
        ("s3://models?endpoint=https://u:password@[::1", "its endpoint a URL"),
        ("s3://models?secret=1", "followed by endpoint and region, not 'secret'"),
        ("s3://models?endpoint=models.example", "must start with https://"),
    ],
)
def test_a_bucket_that_cannot_be_is_refused(tmp_path: Path, url: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"setting MODELLESS_ARTIFACTS_URL: .*{reason}") as said:
        load_settings(state_dir=tmp_path, artifacts_url=url)
    assert "password" not in "".join(format_exception(said.value))


def test_with_a_bucket_everybody_has_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("obstore") is None:
        missing("obstore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
    model = double_model(tmp_path / "double.onnx")
    with s3_emulator() as bucket:
        url = f"s3://models/kept?endpoint={bucket.endpoint}&region=here"
        one, other = (
            store_of(load_settings(state_dir=tmp_path / name, artifacts_url=url)) for name in "ab"
        )
        digest = one.put(model)
        assert list(bucket.objects) == [f"/models/kept/{digest}"]
        assert other.sound(digest).read_bytes() == model.read_bytes()
        assert other.sound(digest).is_relative_to(tmp_path / "b" / "copies")


def test_a_worker_that_sees_the_files_takes_them_wherever_a_gateway_says_they_are(
    tmp_path: Path,
) -> None:
    secret = ensure_secret(tmp_path / "channel.secret")
    supplies = WorkerSupplies(
        secret_path=str(tmp_path / "channel.secret"),
        secret_digest=own_digest(secret),
        artifacts_url="",
        artifacts_dir=str(tmp_path / "artifacts"),
        copies_dir=str(tmp_path / "copies"),
        limit_mib=1.0,
    )
    found, seen = supplies("n1")
    spec = onnx_spec(Path("/home/gateway/copies/model"))
    assert found == secret
    assert seen.placed(spec).path == f"{tmp_path}/artifacts/00/00/{spec.artifact}"

    (tmp_path / "channel.secret").write_bytes(b"x" * 32)
    with pytest.raises(Conflict, match="on node n1 is not the one"):
        supplies("n1")


class Connection:
    """Ray as one process has it; the control loop's application is not there until ``runs``."""

    def __init__(self) -> None:
        self.connected = 0
        self.made = 0
        self.runs = False

    def init(self, **_: object) -> None:
        time.sleep(0.01)  # while others come
        if self.connected:
            raise RuntimeError("you have called ray.init twice")
        self.connected += 1

    def deployment_handle(self, *_: object, _check_exists: bool = True) -> "Connection":
        if _check_exists and not self.runs:
            raise KeyError("controller does not exist.")
        return self

    def options(self, **_: object) -> "Connection":
        if not self.made:
            time.sleep(0.01)
            self.made += 1
        return self

    @property
    def secrets(self) -> "Connection":
        return self

    def remote(self) -> "Connection":
        return self

    def result(self, timeout_s: float) -> str:
        if not self.runs:
            raise TimeoutError(f"nothing in {timeout_s:g} s")
        return "told"


def test_threads_that_ask_first_connect_once_and_wait_for_the_control_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray
    from ray import serve

    one = Connection()
    monkeypatch.setattr(ray, "is_initialized", lambda: one.connected)
    monkeypatch.setattr(ray, "init", one.init)
    monkeypatch.setattr(serve, "get_deployment_handle", one.deployment_handle)
    with pytest.raises(StateUnavailable, match=r"head does not answer: .*nothing in 60 s"):
        asked("secrets")

    one.connected, one.made, one.runs = 0, 0, True
    with ThreadPoolExecutor(4) as threads:
        answers: list[Any] = list(threads.map(asked, ["secrets"] * 4))
    assert (answers, one.connected, one.made) == (["told"] * 4, 1, 1)
    # A command shows what it says, and nothing of Serve's own.
    assert logging.getLogger("ray.serve").level == logging.ERROR
