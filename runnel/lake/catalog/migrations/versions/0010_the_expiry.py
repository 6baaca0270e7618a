"""Let a token expire and be rotated, record its last use, and give it an id that no other token ever has."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Apply this step."""
    op.add_column("runnel_tokens", sa.Column("id", sa.String(63), nullable=False, server_default=""))
    for name in ("expires_at", "last_used_at", "previous_until"):
        op.add_column("runnel_tokens", sa.Column(name, sa.String(32), nullable=True))
    op.add_column("runnel_tokens", sa.Column("previous_hash", sa.String(64), nullable=True))
    op.create_index("runnel_tokens_previous", "runnel_tokens", ["previous_hash"])
    # Answers that were stored for an older token stay its own: they were stored under its name. New ids are random.
    op.execute("update runnel_tokens set id = name")
