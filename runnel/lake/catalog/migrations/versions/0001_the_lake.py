"""Create Iceberg's catalog tables, where another engine has not, and Runnel's."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Apply this step."""
    present = set(sa.inspect(op.get_bind()).get_table_names())
    if "iceberg_tables" not in present:
        _iceberg_tables()
    elif "iceberg_type" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("iceberg_tables")}:
        op.add_column("iceberg_tables", sa.Column("iceberg_type", sa.String(5)))
    if "iceberg_namespace_properties" not in present:
        _iceberg_namespaces()
    _versions()
    _state()
    _upkeep()


def _iceberg_tables() -> None:
    op.create_table(
        "iceberg_tables",
        sa.Column("catalog_name", sa.String(255), primary_key=True),
        sa.Column("table_namespace", sa.String(255), primary_key=True),
        sa.Column("table_name", sa.String(255), primary_key=True),
        sa.Column("metadata_location", sa.String(1000)),
        sa.Column("previous_metadata_location", sa.String(1000)),
        sa.Column("iceberg_type", sa.String(5)),
    )


def _iceberg_namespaces() -> None:
    op.create_table(
        "iceberg_namespace_properties",
        sa.Column("catalog_name", sa.String(255), primary_key=True),
        sa.Column("namespace", sa.String(255), primary_key=True),
        sa.Column("property_key", sa.String(255), primary_key=True),
        sa.Column("property_value", sa.String(1000)),
    )


def _versions() -> None:
    op.create_table(
        "runnel_lake",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("warehouse", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "runnel_lines",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("branch", sa.String(63), nullable=False),
        sa.Column("from_commit", sa.String(20)),
        sa.Column("from_line", sa.String(32)),
        sa.Column("from_seq", sa.BigInteger),
    )
    op.create_table(
        "runnel_commits",
        sa.Column("id", sa.String(20), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False, unique=True),
        sa.Column("line", sa.String(32), nullable=False),
        sa.Column("branch", sa.String(63), nullable=False),
        sa.Column("parent", sa.String(20)),
        sa.Column("merged", sa.String(20)),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("run", sa.Text),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("expired_at", sa.String(32)),
    )
    op.create_index("runnel_commits_line", "runnel_commits", ["line", "seq"])
    op.create_index("runnel_commits_time", "runnel_commits", ["line", "at"])
    merges = sa.text("merged is not null")
    op.create_index(
        "runnel_commits_merged",
        "runnel_commits",
        ["line", "seq", "merged"],
        sqlite_where=merges,
        postgresql_where=merges,
    )
    op.create_table(
        "runnel_changes",
        sa.Column("line", sa.String(32), primary_key=True),
        sa.Column("table_name", sa.String(511), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sa.Column("commit_id", sa.String(20), nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
        sa.Column("content", sa.Text),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("runnel_changes_commit", "runnel_changes", ["commit_id"])


def _state() -> None:
    op.create_table(
        "runnel_branches",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("line", sa.String(32), nullable=False, unique=True),
        sa.Column("head", sa.String(20), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
    )
    op.create_table(
        "runnel_heads",
        sa.Column("branch", sa.String(63), primary_key=True),
        sa.Column("table_name", sa.String(511), primary_key=True),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_table(
        "runnel_tags",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("commit_id", sa.String(20), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )


def _upkeep() -> None:
    op.create_table(
        "runnel_pins",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("commit_id", sa.String(20)),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("expires_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "runnel_slots",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("commit_id", sa.String(20), nullable=False),
        sa.Column("taken_at", sa.String(32), nullable=False),
        sa.Column("expires_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "runnel_garbage",
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("found_at", sa.String(32), nullable=False),
    )
