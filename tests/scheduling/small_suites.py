"""Small suites of their own, which are run as this one is."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Other plug-ins than xdist take half of the processor time."""
CONFTEST = """
import os
from tests.scheduling import processes, yielding
from tests.scheduling.order import Scheduling

def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return Scheduling(config, log)

def pytest_xdist_setupnodes(config, specs):
    processes.use(config, specs)

def pytest_xdist_getremotemodule():
    return processes

def pytest_runtest_logstart(nodeid, location):
    if "PYTEST_XDIST_WORKER" in os.environ:
        yielding.take_turn(nodeid)

with open("collected", "a") as file:
    file.write(f"{os.getpid()} {'PYTEST_XDIST_WORKER' in os.environ}\\n")
"""


def run(folder: Path, *arguments: str, count: int = 2) -> tuple[int, str]:
    """Run the tests in a folder by several processes: the exit code, and what is printed."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "xdist", "-n", str(count),
            "-p", "no:cacheprovider", "-ra",
            "-c", os.devnull, "--rootdir", str(folder), str(folder), *arguments,
        ],
        cwd=folder, env=os.environ | SETTINGS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    return done.returncode, done.stdout
