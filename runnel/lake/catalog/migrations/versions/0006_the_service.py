"""Add the service: the queue of runs, who works, schedules, backfills, tokens, what was pushed, alarms."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "runnel_queue",
        sa.Column("id", sa.String(63), primary_key=True),
        sa.Column("branch", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("wish", sa.Text, nullable=False),
        sa.Column("cause", sa.String(200), nullable=False),
        sa.Column("slot", sa.String(200), nullable=True, unique=True),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("queued_at", sa.String(32), nullable=False),
        sa.Column("not_before", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("timeout_seconds", sa.Integer, nullable=True),
        sa.Column("worker", sa.String(63), nullable=True),
        sa.Column("token", sa.String(32), nullable=True),
        sa.Column("renewed_at", sa.String(32), nullable=True),
        sa.Column("started_at", sa.String(32), nullable=True),
        sa.Column("cancel_at", sa.String(32), nullable=True),
        sa.Column("commit_id", sa.String(20), nullable=True),
        sa.Column("ended_at", sa.String(32), nullable=True),
        sa.Column("outcome", sa.Text, nullable=True),
    )
    op.create_index("runnel_queue_state", "runnel_queue", ["state", "priority", "id"])
    op.create_index("runnel_queue_cause", "runnel_queue", ["cause", "id"])
    op.create_index("runnel_queue_ended", "runnel_queue", ["ended_at"])
    op.create_table(
        "runnel_events",
        sa.Column("run", sa.String(63), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("event", sa.Text, nullable=False),
    )
    op.create_table(
        "runnel_workers",
        sa.Column("id", sa.String(63), primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("renewed_at", sa.String(32), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_table(
        "runnel_leases",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("renewed_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "runnel_schedules",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("declared", sa.Text, nullable=False),
        sa.Column("cursor", sa.Text, nullable=False),
        sa.Column("paused_at", sa.String(32), nullable=True),
        sa.Column("paused_by", sa.Text, nullable=True),
        sa.Column("seen_at", sa.String(32), nullable=False),
        sa.Column("gone_at", sa.String(32), nullable=True),
    )
    op.create_table(
        "runnel_backfills",
        sa.Column("id", sa.String(63), primary_key=True),
        sa.Column("branch", sa.String(63), nullable=False),
        sa.Column("wish", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("made_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "runnel_tokens",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("scope", sa.String(20), nullable=False),
        sa.Column("made_at", sa.String(32), nullable=False),
        sa.Column("revoked_at", sa.String(32), nullable=True),
    )
    op.create_table(
        "runnel_answers",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )
    op.create_table(
        "runnel_declared",
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("name", sa.String(511), primary_key=True),
        sa.Column("declared", sa.Text, nullable=False),
        sa.Column("since", sa.String(32), nullable=False),
    )
    op.create_table(
        "runnel_alarms",
        sa.Column("key", sa.String(300), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("level", sa.String(10), nullable=False),
        sa.Column("since", sa.String(32), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("over_at", sa.String(32), nullable=True),
    )
    op.create_index("runnel_alarms_over", "runnel_alarms", ["over_at"])
    op.create_table(
        "runnel_tellings",
        sa.Column("key", sa.String(300), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("alert", sa.String(200), primary_key=True),
        sa.Column("word", sa.String(10), primary_key=True),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_at", sa.String(32), nullable=False),
        sa.Column("told_at", sa.String(32), nullable=True),
        sa.Column("problem", sa.Text, nullable=True),
    )
