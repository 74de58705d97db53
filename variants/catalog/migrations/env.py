"""How Alembic runs a migration: on the connection, and in the transaction, that it was handed."""

from alembic import context

from variants.catalog.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a column by copying the table
)
with context.begin_transaction():
    context.run_migrations()
