"""Tests that failed beside others, tried again by themselves.

Tests start clusters, kill processes and hold deadlines on two cores that two other such tests
share, on a machine whose own load nobody knows. So ``make test`` gives a few failed ones another
hearing: they must pass three times in a row with nothing beside them, and their names are printed
in any case. What fails by itself, or one time in two, fails there as well.

    python -m tests.again STATUS

after a run of pytest that ended with STATUS. Exits with 0 if the run counts as passed.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.scheduling.order import group

FAILED = 1
NONE_COLLECTED = 5
TIMES = 3
MOST = 3
"""Files, or folders that share a deployment, in which tests of one run failed: more are no
accident. Tests of one of them often fail together, because of what they share."""
FAILURES = Path(".pytest_cache/v/cache/lastfailed")


def unsteady(failed: list[str]) -> bool:
    """Whether these failures may be due to what ran beside the tests."""
    return 0 < len({group(test) for test in failed}) <= MOST


def passes(tests: list[str]) -> bool:
    """Run them with nothing beside them, as often as they must pass.

    In the order in which they stand in their files, because those that share a deployment find it
    as the ones before have left it. pytest keeps that order for files, and not for single tests
    that it is given; so it is given files, and a copy of what it wrote down of the failures.
    """
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    return all(_pass_once(files) for _ in range(TIMES))


def _pass_once(files: Iterable[str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="again-") as cache:
        copy = Path(cache, *FAILURES.parts[-3:])
        copy.parent.mkdir(parents=True)
        shutil.copyfile(FAILURES, copy)
        command = [
            sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", "--last-failed", *files,
        ]  # fmt: skip
        return subprocess.run(command, check=False).returncode == 0


def main(status: int) -> int:
    if status == NONE_COLLECTED:
        return 0
    if status != FAILED or not FAILURES.exists():
        return status
    failed = sorted(json.loads(FAILURES.read_text()))
    if not unsteady(failed):
        return status
    names = "\n".join(f"    {test}" for test in failed)
    print(f"\nFailed beside other tests, and now tried {TIMES} times alone:\n{names}", flush=True)
    if not passes(failed):
        return status
    print(f"\nUNSTEADY: failed beside other tests, passed {TIMES} times alone:\n{names}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
