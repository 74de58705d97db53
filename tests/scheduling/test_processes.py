"""Test processes that are forked from the one that has collected the tests."""

import os
import re
from pathlib import Path

import pytest

from tests.scheduling import processes
from tests.scheduling.small_suites import CONFTEST, run

pytestmark = pytest.mark.slow


def test_tests_are_collected_once_for_all_processes(folder: Path) -> None:
    (folder / "test_one.py").write_text(
        "print('collected', file=open('modules', 'a'))\ndef test_it(): pass\n"
    )
    (folder / "test_two.py").write_text("def test_it(): pass\n")
    code, said = run(folder, count=3)
    assert code == 0, said
    assert "2 passed" in said, said
    assert (folder / "modules").read_text() == "collected\n"
    # The process that gives out the tests reads what configures them as well.
    assert len((folder / "collected").read_text().splitlines()) == 2


def test_none_of_these_tests_starts_a_thread_when_it_is_imported(
    pytestconfig: pytest.Config,
) -> None:
    assert pytestconfig.stash[processes.STARTED] == []


def test_where_collecting_starts_a_thread_each_process_collects(folder: Path) -> None:
    """A process that is forked would lack it, and wait for what it was to do."""
    (folder / "test_one.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "POOL = ThreadPoolExecutor(1)\n"
        "POOL.submit(lambda: None).result()\n"
        "print('collected', file=open('modules', 'a'))\n"
        "def test_it(): assert POOL.submit(lambda: 3).result() == 3\n"
    )
    (folder / "test_two.py").write_text("def test_fails(): assert 0\n")
    code, said = run(folder)
    assert code == 1, said
    assert "1 failed, 1 passed" in said, said
    assert re.search(r"^Collecting has started threads \(.+\), which a fork lacks", said, re.M), (
        said
    )
    assert (folder / "modules").read_text() == "collected\n" * 3


def test_a_run_ends_without_the_process_that_is_forked(folder: Path) -> None:
    (folder / "test_one.py").write_text(
        "import os, signal\ndef test_it(): os.kill(os.getppid(), signal.SIGKILL)\n"
    )
    (folder / "test_two.py").write_text("def test_it(): pass\n")
    code, said = run(folder)
    assert "2 passed" in said, said
    assert code == 0, said


def test_each_has_a_name_a_folder_and_output_of_its_own(folder: Path) -> None:
    """Its main thread, too, by whose number it is bound to cores. They are of one group, which is
    what a terminal interrupts."""
    for number in range(2):
        (folder / f"test_{number}.py").write_text(
            "import os, sys, threading, time\nfrom pathlib import Path\n"
            "def test_it(tmp_path, capfd):\n"
            f"    here = Path({str(folder)!r})\n"
            "    name = os.environ['PYTEST_XDIST_WORKER']\n"
            "    told = f'{name} {tmp_path} {os.getpid()} {os.getpgrp()}'\n"
            f"    (here / 'told-{number}').write_text(told)\n"
            f"    while not (here / 'told-{1 - number}').exists(): time.sleep(0.01)\n"
            f"    print('printed {number}'); os.system('echo by a child {number}')\n"
            f"    assert capfd.readouterr().out == 'printed {number}\\nby a child {number}\\n'\n"
            f"    print('shown {number}', flush=True)\n"
            "    assert threading.main_thread().native_id == threading.get_native_id()\n"
            "def test_fails():\n"
            f"    print('of {number}'); os.write(2, b'error {number}'); assert 0\n"
        )
    code, said = run(folder)
    assert code == 1, said
    assert "2 failed, 2 passed" in said, said
    told = [(folder / f"told-{number}").read_text().split() for number in range(2)]
    assert sorted(name for name, *_ in told) == ["gw0", "gw1"]
    assert len({pid for _, _, pid, _ in told}) == 2
    assert {group for *_, group in told} == {str(os.getpgrp())}
    for name, path, *_ in told:
        assert f"/popen-{name}/" in path
    shown = re.split(r"^_+ test_fails _+$", said, flags=re.MULTILINE)[1:]
    assert len(shown) == 2, said
    for part in shown:
        [number] = set(re.findall(r"^(?:of|error) (\d)", part, flags=re.MULTILINE))
        assert f"of {number}" in part
        assert f"error {number}" in part


def test_what_is_wrong_with_a_file_is_said(folder: Path) -> None:
    (folder / "test_broken.py").write_text("import nowhere_at_all\n")
    (folder / "test_sound.py").write_text("def test_it(): pass\n")
    code, said = run(folder)
    assert code != 0, said
    assert "No module named 'nowhere_at_all'" in said


def test_what_cannot_be_collected_ends_the_run(folder: Path) -> None:
    (folder / "conftest.py").write_text(
        CONFTEST + "import os\ndef pytest_collection():\n"
        "    if os.environ.get('ENDS'): os._exit(3)\n"
    )
    (folder / "test_sound.py").write_text("def test_it(): pass\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENDS", "yes")
        code, said = run(folder)
    assert code not in (0, 1), said
    assert "the process that is forked has ended, with exit code 3" in said


def test_a_process_that_is_killed_while_it_collects_is_told_as_that(folder: Path) -> None:
    """As by the kernel, which ends what takes most memory."""
    (folder / "conftest.py").write_text(
        CONFTEST + "import os, signal\ndef pytest_collection():\n"
        "    if os.environ.get('ENDS'): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (folder / "test_sound.py").write_text("def test_it(): pass\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENDS", "yes")
        code, said = run(folder)
    assert code not in (0, 1), said
    assert "the process that is forked has ended, by SIGKILL" in said


def test_warnings_and_what_ends_a_process_at_exit_are_kept(folder: Path) -> None:
    (folder / "test_it.py").write_text(
        "import atexit, warnings\nwarnings.warn('seen while collecting')\n"
        "def test_it():\n    atexit.register(lambda: open('ended', 'w').close())\n"
    )
    code, said = run(folder)
    assert code == 0, said
    assert "seen while collecting" in said
    assert (folder / "ended").exists()
