"""Write the next migration, after a change of ``variants/catalog/tables.py``.

Run ``python -m variants.catalog.migrations "what changes"``, then read and edit the file it makes.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import alembic.command

from variants.catalog.database import make_engine
from variants.catalog.migrations import configuration, upgrade


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit('usage: python -m variants.catalog.migrations "what changes"')
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'catalog.db'}"
        upgrade(url)
        engine = make_engine(url)
        with engine.connect() as connection:
            config = configuration(connection)
            step = f"{len(list(Path(__file__).parent.glob('versions/[0-9]*.py'))) + 1:04}"
            alembic.command.revision(config, sys.argv[1], autogenerate=True, rev_id=step)
        engine.dispose()


if __name__ == "__main__":
    main()
