"""Add the inbox: events that were pushed to sources, and by what they are known."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "runnel_inboxes",
        sa.Column("source", sa.String(511), primary_key=True),
        sa.Column("last", sa.BigInteger, nullable=False),
        sa.Column("gone", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "runnel_inbox",
        sa.Column("source", sa.String(511), primary_key=True),
        sa.Column("last", sa.BigInteger, primary_key=True),
        sa.Column("first", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("received_at", sa.String(32), nullable=False),
        sa.Column("mark", sa.String(32), nullable=False),
    )
    op.create_index("runnel_inbox_mark", "runnel_inbox", ["mark"])
    op.create_table(
        "runnel_inbox_keys",
        sa.Column("source", sa.String(511), primary_key=True),
        sa.Column("key", sa.String(40), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("request", sa.String(64), nullable=True),
        sa.Column("taken", sa.Integer, nullable=True),
        sa.Column("known", sa.Integer, nullable=True),
    )
    op.create_index("runnel_inbox_keys_number", "runnel_inbox_keys", ["source", "number"])
