"""Tell Alembic which connection to migrate: the one that the caller opened."""

from alembic import context

from runnel.lake.catalog.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table="runnel_schema")
with context.begin_transaction():
    context.run_migrations()
