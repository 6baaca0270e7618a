"""Add the code of runs: files and manifests, each known by its hash."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "runnel_code",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("kept_at", sa.String(32), nullable=False),
    )
