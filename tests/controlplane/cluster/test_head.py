"""From where a process has artifacts: the state directory if it sees it, or else the head."""

from pathlib import Path

import pytest

from controlplane.cluster.head import ELSEWHERE, WorkerSupplies, is_home, store_of
from controlplane.settings import Settings, load_settings
from controlplane.startup.checks.services import artifacts
from tests.workers.builders import onnx_spec
from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.store import FileArtifactStore
from variants.errors import Conflict, InvalidInput
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


def test_what_reads_files_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from controlplane.cli.commands.repair import repair

    [finding] = artifacts(settings(tmp_path))
    assert (finding.ok, finding.message) == (True, ELSEWHERE)

    monkeypatch.setenv("MODELLESS_RAY_ADDRESS", "auto")
    with pytest.raises(InvalidInput, match="run this there"):
        repair(state_dir=tmp_path)


def test_a_worker_that_sees_the_files_takes_them_wherever_a_gateway_says_they_are(
    tmp_path: Path,
) -> None:
    secret = ensure_secret(tmp_path / "channel.secret")
    supplies = WorkerSupplies(
        secret_path=str(tmp_path / "channel.secret"),
        secret_digest=own_digest(secret),
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
