"""Register the digits family in a state directory, in a process of its own.

The variants are measured coarsely, in children that are forked: half of the work, of which most is
the largest model's.

``python -m tests.integration.registering FAMILY HOME`` prints, as JSON, what progress was told step
by step, and whether torch was imported: other tests import it in their process.
"""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from controlplane.registry.example_models import ensure_digits
from controlplane.settings import load_settings
from profiler.sandbox.limits import MeasureLimits
from tests.integration.digits import LARGEST_BATCH
from tests.profiler.forked import children_are_forked
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog

COARSE = MeasureLimits(
    batch_sizes=(1, LARGEST_BATCH), point_s=0.05, rounds=2, min_runs=4, precision=1.0
)


def registered_in_a_child(family: Path, home: Path) -> str:
    """What the process prints: ``[steps, imported torch]``."""
    command = [sys.executable, "-m", "tests.integration.registering", str(family), str(home)]
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True
    )
    return ran.stdout


def main(family: Path, home: Path) -> None:
    done: list[int] = []
    shutil.copytree(family, home / "zoo" / "digits")
    settings = load_settings(state_dir=home)
    with closing(open_catalog(settings.catalog_url)) as catalog, children_are_forked():
        store = FileArtifactStore(settings.artifacts_dir)
        ensure_digits(settings, catalog, store, lambda one: done.append(one.done), measure=COARSE)
    print(json.dumps([done, "torch" in sys.modules]))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
