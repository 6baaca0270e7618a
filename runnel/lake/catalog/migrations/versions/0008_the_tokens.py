"""Let a token be for some tables, or one branch, only."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Apply this step."""
    op.add_column("runnel_tokens", sa.Column("tables", sa.Text, nullable=True))
    op.add_column("runnel_tokens", sa.Column("branch", sa.String(63), nullable=True))
