"""The unit for systemd, and what a service manager is told."""

import re
import socket
from configparser import RawConfigParser
from pathlib import Path

import pytest

from controlplane.cli.commands.root import COMMANDS
from controlplane.startup.presence import tell_service_manager
from tests.deploy.test_files import DEPLOY


def unit() -> RawConfigParser:
    found = RawConfigParser(strict=True)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(DEPLOY / "modelless.service")
    return found


def test_the_unit_runs_commands_that_there_are() -> None:
    known = {entry.name for entries in COMMANDS.values() for entry in entries}
    service = unit()["Service"]
    run = {Path(words[0]).name: words[1:] for words in (service["ExecStart"].split(),)}
    assert run == {"modelless": ["up"]}
    assert {service[name].split()[1] for name in ("ExecStart", "ExecReload")} <= known


def test_the_unit_leaves_workers_to_modelless() -> None:
    """systemd signals `modelless up` alone, and goes on where the kernel ended one process."""
    service = unit()["Service"]
    assert service["KillMode"] == "mixed"
    assert service["OOMPolicy"] == "continue"
    assert service["RestartPreventExitStatus"] == "2"
    [folder] = re.findall(r"MODELLESS_STATE_DIR=(\S+)", service["Environment"])
    assert folder == f"/var/lib/{service['StateDirectory']}"


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_is_told(tmp_path: Path, abstract: bool) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path if abstract else path)
        manager.settimeout(10)
        address = {"NOTIFY_SOCKET": "@" + path if abstract else path}
        tell_service_manager("READY=1", address)
        assert manager.recv(64) == b"READY=1"
    for nobody in (address, {}, {"NOTIFY_SOCKET": "vsock:2:1"}):
        tell_service_manager("STOPPING=1", nobody)
