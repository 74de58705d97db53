"""The form of a backup: a tar file of these members, in this order.

======================  ==========================================================================
``backup.json``         ``Summary``: what the rest has to be
``catalog.jsonl``       the catalog, a line for each row: ``["tasks", {"name": "digits", ...}]``
``client-keys``         the file of clients' keys, where there is one; with digests in place of keys
``artifacts/<sha256>``  the artifacts that the catalog names, each under its hash
======================  ==========================================================================

Nothing is compressed: models hardly become smaller. Secrets are left out, which are made anew, and
so are settings, which may hold some.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson

from variants.errors import InvalidInput

FORMAT = 1
SUMMARY, CATALOG, KEYS, ARTIFACTS = "backup.json", "catalog.jsonl", "client-keys", "artifacts/"
MOST_SUMMARY_BYTES = 64 * 2**20
"""Also of the file of keys."""
MOST_ROW_BYTES = 256 * 2**20


NAMED_BY = {"versions": "source", "variants": "artifact"}
"""The tables of the catalog whose rows name an artifact, and the column that does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a backup holds."""

    made_at: str
    """ISO 8601, UTC."""
    release: str
    """The version of modelless that wrote it."""
    migration: str
    """Which tables the rows are of."""
    catalog_sha256: str
    rows: int
    tasks: int
    artifacts: int
    artifact_bytes: int
    missing: tuple[str, ...] = ()
    """Hashes of artifacts that were damaged or missing when it was made, and are not in it."""
    format: int = FORMAT

    def encoded(self) -> bytes:
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)

    @classmethod
    def decoded(cls, text: bytes) -> Self:
        """
        Raises:
            InvalidInput: it is of no backup, or of one that this version cannot read.
        """
        try:
            told: dict[str, Any] = orjson.loads(text)
            if told["format"] != FORMAT:
                raise InvalidInput(
                    f"the backup has the format {told['format']!r}; this version reads {FORMAT}"
                )
            missing = tuple(map(str, told.pop("missing")))
            told["migration"] = str(told["migration"])
            return cls(**told, missing=missing)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise InvalidInput("the file is no backup of modelless") from error
