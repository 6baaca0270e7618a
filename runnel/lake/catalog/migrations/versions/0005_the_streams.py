"""Add streams: where each is, and what its batches did."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "runnel_streams",
        sa.Column("branch", sa.String(63), primary_key=True),
        sa.Column("table_name", sa.String(511), primary_key=True),
        sa.Column("life", sa.String(32), nullable=False),
        sa.Column("query", sa.String(36), nullable=True),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("tapes", sa.Text, nullable=False),
        sa.Column("begun_at", sa.String(32), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("problem", sa.Text, nullable=True),
        sa.Column("since", sa.String(32), nullable=False),
        sa.Column("owner", sa.Text, nullable=True),
        sa.Column("token", sa.String(32), nullable=True),
        sa.Column("expires_at", sa.String(32), nullable=True),
    )
    op.create_table(
        "runnel_batches",
        sa.Column("query", sa.String(36), primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("branch", sa.String(63), nullable=False),
        sa.Column("table_name", sa.String(511), nullable=False),
        sa.Column("commit_id", sa.String(20), nullable=True),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("runnel_batches_table", "runnel_batches", ["branch", "table_name", "at"])
    compactions = sa.text("kind = 'compact'")
    op.create_index(
        "runnel_commits_compact",
        "runnel_commits",
        ["seq"],
        sqlite_where=compactions,
        postgresql_where=compactions,
    )
