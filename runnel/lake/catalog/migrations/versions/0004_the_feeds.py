"""Add the state of sources that are no files, and how far sinks have come."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Apply this step."""
    op.add_column("runnel_ingested", sa.Column("state", sa.Text, nullable=True))
    op.create_table(
        "runnel_deliveries",
        sa.Column("sink", sa.String(511), primary_key=True),
        sa.Column("delivered", sa.String(40), nullable=True),
        sa.Column("seq", sa.BigInteger, nullable=True),
        sa.Column("location", sa.Text, nullable=True),
        sa.Column("content", sa.Text, nullable=True),
        sa.Column("begun", sa.String(40), nullable=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=True),
        sa.Column("at", sa.String(32), nullable=True),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("problem", sa.Text, nullable=True),
        sa.Column("failing_since", sa.String(32), nullable=True),
        sa.Column("next_at", sa.String(32), nullable=True),
        sa.Column("holder", sa.String(300), nullable=True),
        sa.Column("held_until", sa.String(32), nullable=True),
    )
