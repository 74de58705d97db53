"""The first tables.

Revision: 0001
Follows: nothing
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_counters()
    _create_models()
    _create_profiles()
    _create_history()


def downgrade() -> None:
    op.drop_table("profile_points")
    op.drop_index("ix_profiles_device_kind", table_name="profiles")
    op.drop_table("profiles")
    op.drop_index("ix_variants_task_model_version", table_name="variants")
    op.drop_table("variants")
    op.drop_table("versions")
    op.drop_table("plans")
    op.drop_table("ticks")
    op.drop_table("tasks")
    op.drop_table("leaders")
    op.drop_table("events")
    op.drop_table("device_kinds")
    op.drop_table("inventory")
    op.drop_table("counters")


def _create_counters() -> None:
    counters = op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )
    op.bulk_insert(
        counters,
        [
            {"name": name, "value": 0}
            for name in ("revision", "inventory", "epoch", "plan", "tick", "event")
        ],
    )


def _create_models() -> None:
    op.create_table(
        "tasks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("outputs", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("slo_latency_ms", sa.Double(), nullable=False),
        sa.Column("slo_accuracy", sa.Double(), nullable=True),
        sa.Column("slo_cost", sa.Double(), nullable=True),
        sa.Column("slo_prefer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_tasks"),
    )
    op.create_table(
        "versions",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["task"], ["tasks.name"], name="fk_versions_tasks"),
        sa.PrimaryKeyConstraint("task", "model", "version", name="pk_versions"),
    )
    op.create_table(
        "variants",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("runtime", sa.Text(), nullable=False),
        sa.Column("precision", sa.Text(), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("accuracy", sa.Double(), nullable=False),
        sa.Column("accuracy_rows", sa.Integer(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task", "model", "version"],
            ["versions.task", "versions.model", "versions.version"],
            name="fk_variants_versions",
        ),
        sa.PrimaryKeyConstraint("task", "name", name="pk_variants"),
    )
    op.create_index(
        "ix_variants_task_model_version", "variants", ["task", "model", "version"], unique=False
    )


def _create_profiles() -> None:
    op.create_table(
        "device_kinds",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.Double(), nullable=False),
        sa.Column("usd_per_hour", sa.Double(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_device_kinds"),
    )
    op.create_table(
        "profiles",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("device_kind", sa.Text(), nullable=False),
        sa.Column("memory_mib", sa.Double(), nullable=False),
        sa.Column("load_s", sa.Double(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("measured_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_kind"], ["device_kinds.name"], name="fk_profiles_device_kinds"
        ),
        sa.ForeignKeyConstraint(
            ["task", "variant"], ["variants.task", "variants.name"], name="fk_profiles_variants"
        ),
        sa.PrimaryKeyConstraint("task", "variant", "device_kind", name="pk_profiles"),
    )
    op.create_index("ix_profiles_device_kind", "profiles", ["device_kind"], unique=False)
    op.create_table(
        "profile_points",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("device_kind", sa.Text(), nullable=False),
        sa.Column("batch_size", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("p50_ms", sa.Double(), nullable=False),
        sa.Column("p95_ms", sa.Double(), nullable=False),
        sa.Column("p99_ms", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task", "variant", "device_kind"],
            ["profiles.task", "profiles.variant", "profiles.device_kind"],
            name="fk_profile_points_profiles",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "task", "variant", "device_kind", "batch_size", name="pk_profile_points"
        ),
    )


def _create_history() -> None:
    op.create_table(
        "inventory",
        sa.Column("device_kind", sa.Text(), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("device_kind", name="pk_inventory"),
    )
    op.create_table(
        "leaders",
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("epoch", name="pk_leaders"),
    )
    op.create_table(
        "plans",
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["epoch"], ["leaders.epoch"], name="fk_plans_leaders"),
        sa.PrimaryKeyConstraint("version", name="pk_plans"),
    )
    op.create_table(
        "ticks",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("plan_version", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_ticks"),
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
    )
