"""The tables of the SQL catalog. ``migrations`` makes them; a test checks that they agree."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
    text,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""Numbers that only grow. Writers of one kind queue up behind their counter's row."""

changes = Table(
    "changes",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("task", Text, primary_key=True),
    Column("mark", Text, nullable=False),
)
"""Of which tasks the latest revisions have changed something; see ``variants.catalog.changes``.
Processes of an earlier release, which do not know it, note nothing."""

tasks = Table(
    "tasks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("inputs", JSON, nullable=False),
    Column("outputs", JSON, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("metric", Text, nullable=False),
    Column("slo_latency_ms", Double, nullable=False),
    Column("slo_accuracy", Double),
    Column("slo_cost", Double),
    Column("slo_prefer", Text, nullable=False),
    Column("sharing_ttl_s", Double),
    Column("sharing_memory_mib", Double),
    Column("image", JSON(none_as_null=True)),
    Column("bucket", JSON(none_as_null=True)),
    Column("text", JSON(none_as_null=True)),
)
"""Both columns about sharing are there, or neither. ``image`` has ``mean`` and ``std``, lists;
``bucket`` has the fields of a ``LengthBucket``, and ``text`` those of a ``TextInput``."""

tokenizers = Table(
    "tokenizers",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("packed", LargeBinary, nullable=False),
)
"""The ``tokenizer.json`` of tasks that name them, packed by zlib."""

versions = Table(
    "versions",
    metadata,
    Column("task", Text, ForeignKey(tasks.c.name), primary_key=True),
    Column("model", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("stage", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("text", JSON(none_as_null=True)),
)

variants = Table(
    "variants",
    metadata,
    Column("task", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("runtime", Text, nullable=False),
    Column("precision", Text, nullable=False),
    Column("artifact", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("accuracy", Double, nullable=False),
    Column("accuracy_rows", Integer, nullable=False),
    Column("options", JSON, nullable=False),
    Column("agreement", Double),
    Column("note", Text, nullable=False, server_default=text("''")),
    Column("answered", JSON(none_as_null=True)),
    Column("found", JSON(none_as_null=True)),
    ForeignKeyConstraint(
        ["task", "model", "version"], [versions.c.task, versions.c.model, versions.c.version]
    ),
)
Index(None, variants.c.task, variants.c.model, variants.c.version)

device_kinds = Table(
    "device_kinds",
    metadata,
    Column("name", Text, primary_key=True),
    Column("cores", Integer, nullable=False),
    Column("memory_mib", Double, nullable=False),
    Column("usd_per_hour", Double, nullable=False),
    Column("gpu", Text),
    Column("idle_w", Double),
    Column("carbon_g_per_kwh", JSON),
)

profiles = Table(
    "profiles",
    metadata,
    Column("task", Text, primary_key=True),
    Column("variant", Text, primary_key=True),
    Column("device_kind", Text, ForeignKey(device_kinds.c.name), primary_key=True, index=True),
    Column("memory_mib", Double, nullable=False),
    Column("load_s", Double, nullable=False),
    Column("source", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("measured_at", Text, nullable=False),
    Column("cold_load_s", Double),
    Column("host_memory_mib", Double),
    Column("energy_j", Double),
    Column("measured_on", Text, nullable=False, server_default=text("''")),
    Column("beside_load", Boolean, nullable=False, server_default=false()),
    Column("working_mib", Double),
    ForeignKeyConstraint(["task", "variant"], [variants.c.task, variants.c.name]),
)

profile_points = Table(
    "profile_points",
    metadata,
    Column("task", Text, primary_key=True),
    Column("variant", Text, primary_key=True),
    Column("device_kind", Text, primary_key=True),
    Column("batch_size", Integer, primary_key=True, autoincrement=False),
    Column("p50_ms", Double, nullable=False),
    Column("p95_ms", Double, nullable=False),
    Column("p99_ms", Double, nullable=False),
    Column("error", Double, nullable=False, server_default="0"),
    Column("energy_j", Double),
    ForeignKeyConstraint(
        ["task", "variant", "device_kind"],
        [profiles.c.task, profiles.c.variant, profiles.c.device_kind],
        ondelete="CASCADE",
    ),
)

profiling_requests = Table(
    "profiling_requests",
    metadata,
    Column("task", Text, primary_key=True),
    Column("variant", Text, primary_key=True),
    Column("device_kind", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("at", Text, nullable=False),
    ForeignKeyConstraint(["task", "variant"], [variants.c.task, variants.c.name]),
)

removed_versions = Table(
    "removed_versions",
    metadata,
    Column("task", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
)
"""Their numbers are not given again to other bytes."""

lived_versions = Table(
    "lived_versions",
    metadata,
    Column("task", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
)
"""Versions that are or were live: those that `modelless rollback` may go back to."""

canaries = Table(
    "canaries",
    metadata,
    Column("task", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("share", Double, nullable=False),
    Column("after", BigInteger, nullable=False),
    Column("promote", Boolean, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("set_at", Text, nullable=False),
    Column("ended", Text, nullable=False),
)
"""Refers to no version: processes of an earlier release, which do not know it, remove versions."""

leftover_artifacts = Table(
    "leftover_artifacts",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("subject", Text, nullable=False),
)
"""Artifacts of what was removed, which are to be freed unless something else uses them."""

inventory = Table(
    "inventory",
    metadata,
    Column("device_kind", Text, primary_key=True),
    Column("workers", Integer, nullable=False),
)

quarantine_lifts = Table(
    "quarantine_lifts",
    metadata,
    Column("task", Text, primary_key=True),
    Column("variant", Text, primary_key=True),
    Column("at_s", Double, nullable=False),
    ForeignKeyConstraint(["task", "variant"], [variants.c.task, variants.c.name]),
)

accepted_answers = Table(
    "accepted_answers",
    metadata,
    Column("task", Text, primary_key=True),
    Column("variant", Text, primary_key=True),
    Column("since_s", Double, nullable=False),
    Column("at_s", Double, nullable=False),
    Column("by", Text, nullable=False),
    Column("why", Text, nullable=False),
)
"""Refers to no variant: processes of an earlier release, which do not know it, remove variants."""

rules = Table(
    "rules",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("variant", Text, nullable=False),
    Column("device_kind", Text, nullable=False),
    Column("replicas", Integer, nullable=False),
    Column("at_s", Double, nullable=False),
    Column("until_s", Double),
    Column("by", Text, nullable=False),
    Column("why", Text, nullable=False),
)
"""What operators said of what is loaded. Names are empty in a freeze, so none is a foreign key."""

peaks = Table(
    "peaks",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("task", Text),
    Column("factor", Double),
    Column("qps", Double),
    Column("start_s", Double, nullable=False),
    Column("end_s", Double, nullable=False),
    Column("every_s", Double, nullable=False),
    Column("note", Text, nullable=False),
)

learned = Table(
    "learned",
    metadata,
    Column("name", Text, primary_key=True),
    Column("at_s", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""What the control loop has learned, for its successor."""

leaders = Table(
    "leaders",
    metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("mark", Text),
)
"""The mark is random, and null where a process of an earlier release leads."""

plans = Table(
    "plans",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, ForeignKey(leaders.c.epoch), nullable=False),
    Column("created_at", Text, nullable=False),
    Column("body", JSON, nullable=False),
)

ticks = Table(
    "ticks",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("plan_version", BigInteger, nullable=False),
    Column("at", Text, nullable=False),
    Column("body", JSON, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("message", Text, nullable=False),
)
