"""CONTRIBUTING.md and ARCHITECTURE.md name files and targets that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
FILES = sorted(
    {
        name
        for name in re.findall(r"[`(]([\w./-]+/[\w.-]*)[`)]", TEXT + ARCHITECTURE)
        if (ROOT / name.partition("/")[0]).is_dir()
    }
)


@pytest.mark.parametrize("name", FILES)
def test_what_it_names_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_it_names_the_registries() -> None:
    assert {"planner/eviction/rules.py", "workers/runtimes/registry.py"} <= set(FILES)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make (\w+)", TEXT))))
def test_every_target_is_one_of_the_makefile(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
