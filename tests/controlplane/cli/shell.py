"""Running commands in the test's own process."""

import io
import json
from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.cli import main as cli


@dataclass(frozen=True)
class Ended:
    """How a run of the command line ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Runs commands in this process, as the installed script does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, url: str = "") -> Ended:
        self._monkeypatch.setenv("MODELLESS_URL", url)
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        said = self._capsys.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True
