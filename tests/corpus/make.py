"""Write the bad artefacts: ``python -m tests.corpus.make DIR``.

Each gets a folder of its own in ``DIR``, with a sound model and sound rows beside it, and a line
here: its name, the step at which registering it ends, and what is said then (a regular expression).
Some are no plain files: pipes, sockets, links, names that no shell likes.
"""

import sys
from pathlib import Path

from tests.corpus.case import sound_model, sound_rows
from tests.corpus.cases import CASES


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tests.corpus.make DIR")
    top = Path(sys.argv[1])
    for case in CASES:
        folder = top / case.name
        folder.mkdir(parents=True)
        sound_model(folder)
        sound_rows(folder)
        case.make(folder)
        print(f"{case.name:52} {case.step:8} {case.says}")
    print(f"{len(CASES)} bad artefacts in {top}")


if __name__ == "__main__":
    main()
