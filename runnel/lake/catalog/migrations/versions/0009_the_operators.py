"""Let people acknowledge, dismiss and mute alarms; let a token only push events to some sources."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Apply this step."""
    for name in ("acknowledged", "dismissed"):
        op.add_column("runnel_alarms", sa.Column(f"{name}_at", sa.String(32), nullable=True))
        op.add_column("runnel_alarms", sa.Column(f"{name}_by", sa.String(200), nullable=True))
    op.add_column("runnel_alarms", sa.Column("note", sa.Text, nullable=True))
    op.create_table(
        "runnel_mutes",
        sa.Column("subject", sa.String(300), primary_key=True),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("muted_until", sa.String(32), nullable=False),
        sa.Column("muted_by", sa.String(200), nullable=False),
    )
    op.add_column("runnel_tokens", sa.Column("sources", sa.Text, nullable=True))
