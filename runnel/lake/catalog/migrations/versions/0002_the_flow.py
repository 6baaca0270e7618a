"""Add what the flow engine keeps: results, runs, the ingest position; and a token for each slot."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply this step."""
    op.add_column("runnel_slots", sa.Column("token", sa.String(32), nullable=False, server_default=""))
    _results()
    _runs()
    _ingested()


def _results() -> None:
    op.create_table(
        "runnel_results",
        sa.Column("table_name", sa.String(511), primary_key=True),
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("quarantine_location", sa.Text),
        sa.Column("quarantine_content", sa.Text),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("branch", sa.String(63), nullable=False),
        sa.Column("made_at", sa.String(32), nullable=False),
        sa.Column("used_at", sa.String(32), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("runnel_results_content", "runnel_results", ["table_name", "content"])


def _runs() -> None:
    op.create_table(
        "runnel_runs",
        sa.Column("id", sa.String(63), primary_key=True),
        sa.Column("branch", sa.String(63), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("ended_at", sa.String(32)),
        sa.Column("commit_id", sa.String(20)),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("runnel_runs_started", "runnel_runs", ["started_at"])


def _ingested() -> None:
    op.create_table(
        "runnel_ingested",
        sa.Column("line", sa.String(32), primary_key=True),
        sa.Column("table_name", sa.String(511), primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("modified_ns", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("files", sa.Text, nullable=False),
        sa.Column("gone", sa.Boolean, nullable=False),
    )
