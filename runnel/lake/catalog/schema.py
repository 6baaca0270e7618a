"""Define the tables of the catalog database: Iceberg's own two, and Runnel's.

Times are ISO 8601 text in UTC with microseconds, so that SQLite and PostgreSQL sort them alike.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text, text

metadata = MetaData()

# Iceberg's SQL catalog, schema version V1: shared with Spark's JdbcCatalog, PyIceberg and other engines.
iceberg_tables = Table(
    "iceberg_tables",
    metadata,
    Column("catalog_name", String(255), primary_key=True),
    Column("table_namespace", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("metadata_location", String(1000)),
    Column("previous_metadata_location", String(1000)),
    Column("iceberg_type", String(5)),
)
iceberg_namespaces = Table(
    "iceberg_namespace_properties",
    metadata,
    Column("catalog_name", String(255), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("property_key", String(255), primary_key=True),
    Column("property_value", String(1000)),
)

lake = Table(
    "runnel_lake",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("uuid", String(36), nullable=False),
    Column("warehouse", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),  # also the lock that serializes publishes
    Column("created_at", String(32), nullable=False),
)
# A line is the chain of commits of one branch, starting at the commit it was forked from. It outlives the branch.
lines = Table(
    "runnel_lines",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("branch", String(63), nullable=False),
    Column("from_commit", String(20)),
    Column("from_line", String(32)),
    Column("from_seq", BigInteger),
)
branches = Table(
    "runnel_branches",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("line", String(32), nullable=False, unique=True),
    Column("head", String(20), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("author", Text, nullable=False),
)
commits = Table(
    "runnel_commits",
    metadata,
    Column("id", String(20), primary_key=True),
    Column("seq", BigInteger, nullable=False, unique=True),
    Column("line", String(32), nullable=False),
    Column("branch", String(63), nullable=False),
    Column("parent", String(20)),
    Column("merged", String(20)),
    Column("kind", String(20), nullable=False),
    Column("author", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("run", Text),
    Column("at", String(32), nullable=False),
    Column("expired_at", String(32)),
    Index("runnel_commits_line", "line", "seq"),
    Index("runnel_commits_time", "line", "at"),
    # Merges only, so that the cost of an ancestry lookup does not grow with the number of commits.
    Index(
        "runnel_commits_merged",
        "line",
        "seq",
        "merged",
        sqlite_where=text("merged is not null"),
        postgresql_where=text("merged is not null"),
    ),
    # Compactions only, so that the cost of finding them does not grow with the number of commits.
    Index(
        "runnel_commits_compact",
        "seq",
        sqlite_where=text("kind = 'compact'"),
        postgresql_where=text("kind = 'compact'"),
    ),
)
changes = Table(
    "runnel_changes",
    metadata,
    Column("line", String(32), primary_key=True),
    Column("table_name", String(511), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("commit_id", String(20), nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("content", Text),  # the version whose rows these are; a compaction keeps it
    Column("detail", Text, nullable=False),  # JSON: provenance, replaced files
    Index("runnel_changes_commit", "commit_id"),
)
# What Runnel last published to each branch. A difference from iceberg_tables was made by another engine.
heads = Table(
    "runnel_heads",
    metadata,
    Column("branch", String(63), primary_key=True),
    Column("table_name", String(511), primary_key=True),
    Column("location", Text, nullable=False),
    Column("content", Text, nullable=False),
)
tags = Table(
    "runnel_tags",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("commit_id", String(20), nullable=False),
    Column("author", Text, nullable=False),
    Column("at", String(32), nullable=False),
)
# Open writes and long reads: garbage collection retains their files while their pin is valid.
pins = Table(
    "runnel_pins",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("kind", String(10), nullable=False),
    Column("owner", Text, nullable=False),
    Column("commit_id", String(20)),
    Column("started_at", String(32), nullable=False),
    Column("expires_at", String(32), nullable=False),
)
slots = Table(
    "runnel_slots",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("owner", Text, nullable=False),
    Column("commit_id", String(20), nullable=False),
    Column("taken_at", String(32), nullable=False),
    Column("expires_at", String(32), nullable=False),
    Column("token", String(32), nullable=False, server_default=""),  # identifies the holder, because names are reused
)
garbage = Table(
    "runnel_garbage",
    metadata,
    Column("path", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("found_at", String(32), nullable=False),
)
# Results of tasks by a key of their code and inputs, shared by all branches. gc retains their versions.
results = Table(
    "runnel_results",
    metadata,
    Column("table_name", String(511), primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("location", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("quarantine_location", Text),
    Column("quarantine_content", Text),
    Column("run", Text, nullable=False),
    Column("branch", String(63), nullable=False),
    Column("made_at", String(32), nullable=False),
    Column("used_at", String(32), nullable=False),
    Column("detail", Text, nullable=False),  # JSON: code, versions of inputs, rows, columns
    Index("runnel_results_content", "table_name", "content"),
)
runs = Table(
    "runnel_runs",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("branch", String(63), nullable=False),
    Column("state", String(20), nullable=False),
    Column("author", Text, nullable=False),
    Column("started_at", String(32), nullable=False),
    Column("ended_at", String(32)),
    Column("commit_id", String(20)),
    Column("detail", Text, nullable=False),  # JSON: selection, steps, error, the leases that it holds
    Index("runnel_runs_started", "started_at"),
)
# Positions of sources. Looked up like changes: the newest on the line, else on the line that it was forked from.
ingested = Table(
    "runnel_ingested",
    metadata,
    Column("line", String(32), primary_key=True),
    Column("table_name", String(511), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("modified_ns", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("identity", Text, nullable=False),
    Column("files", Text, nullable=False),  # JSON: the data files that hold its rows
    Column("gone", Boolean, nullable=False),
    Column("state", Text, nullable=True),  # JSON: position of a source other than files; the path of its row is `state`
)
# Positions of sinks: the last commit delivered, and the state of the delivery after that.
deliveries = Table(
    "runnel_deliveries",
    metadata,
    Column("sink", String(511), primary_key=True),
    Column("delivered", String(40), nullable=True),  # id of the commit
    Column("seq", BigInteger, nullable=True),
    Column("location", Text, nullable=True),  # the version of its table at that commit; null if it did not exist
    Column("content", Text, nullable=True),
    Column("begun", String(40), nullable=True),  # the commit whose whole table is being delivered
    Column("epoch", Integer, nullable=False),  # how often the sink was reset
    Column("rows", BigInteger, nullable=True),  # of the last delivery
    Column("at", String(32), nullable=True),
    Column("attempts", Integer, nullable=False),  # failed attempts since the last delivery
    Column("problem", Text, nullable=True),
    Column("failing_since", String(32), nullable=True),
    Column("next_at", String(32), nullable=True),  # until then a run tries once and does not wait for retries
    Column("holder", String(300), nullable=True),  # the process that delivers now, and its lease's end
    Column("held_until", String(32), nullable=True),
)
# A stream: a task that continues from its checkpoint. Each life of it starts empty and has a checkpoint of its own.
streams = Table(
    "runnel_streams",
    metadata,
    Column("branch", String(63), primary_key=True),
    Column("table_name", String(511), primary_key=True),
    Column("life", String(32), nullable=False),
    Column("query", String(36), nullable=True),  # Spark's id of the checkpoint's query, once it has one
    Column("code", Text, nullable=False),  # the fingerprint of its task when it last started
    Column("tapes", Text, nullable=False),  # JSON: the append log of each table that it reads as a stream
    Column("begun_at", String(32), nullable=False),
    Column("state", String(20), nullable=False),  # idle, running, waiting, failed
    Column("problem", Text, nullable=True),
    Column("since", String(32), nullable=False),
    Column("owner", Text, nullable=True),  # the process that runs it, and its lease's end
    Column("token", String(32), nullable=True),
    Column("expires_at", String(32), nullable=True),
)
# Batches of streams, each written in the transaction that publishes it, so that none is published twice.
batches = Table(
    "runnel_batches",
    metadata,
    Column("query", String(36), primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("branch", String(63), nullable=False),
    Column("table_name", String(511), nullable=False),
    Column("commit_id", String(20), nullable=True),
    Column("at", String(32), nullable=False),
    Column("detail", Text, nullable=False),  # JSON: rows, times, the watermark, the size of the state
    Index("runnel_batches_table", "branch", "table_name", "at"),
)
# The run queue. A worker claims a run for a limited time with a token; without a valid token it can't publish.
queue = Table(
    "runnel_queue",
    metadata,
    Column("id", String(63), primary_key=True),  # of the run
    Column("branch", String(63), nullable=False),
    Column("kind", String(10), nullable=False),  # run, plan, query, lineage, rewind, release, delivery
    Column("wish", Text, nullable=False),  # JSON: what to run, and how
    Column("cause", String(200), nullable=False),  # who requested it: a user, a schedule, a backfill
    Column("slot", String(200), nullable=True, unique=True),  # what is run only once, such as a schedule's time
    Column("author", Text, nullable=False),
    Column("priority", Integer, nullable=False),  # higher runs earlier
    Column("state", String(20), nullable=False),  # queued, running, or how it ended
    Column("queued_at", String(32), nullable=False),
    Column("not_before", String(32), nullable=False),
    Column("attempt", Integer, nullable=False),  # number of the current or last attempt
    Column("retries", Integer, nullable=False),
    Column("timeout_seconds", Integer, nullable=True),
    Column("worker", String(63), nullable=True),
    Column("token", String(32), nullable=True),
    Column("renewed_at", String(32), nullable=True),  # when the claim was last renewed
    Column("started_at", String(32), nullable=True),
    Column("cancel_at", String(32), nullable=True),  # when its cancellation was requested
    Column("commit_id", String(20), nullable=True),  # written in the transaction that publishes it
    Column("ended_at", String(32), nullable=True),
    Column("outcome", Text, nullable=True),  # JSON: the result or the error
    Index("runnel_queue_state", "state", "priority", "id"),
    Index("runnel_queue_cause", "cause", "id"),
    Index("runnel_queue_ended", "ended_at"),
)
# Events of a run in progress, for clients that follow it.
events = Table(
    "runnel_events",
    metadata,
    Column("run", String(63), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at", String(32), nullable=False),
    Column("event", Text, nullable=False),  # JSON
)
# Worker and service processes. A process whose row is not renewed is dead.
workers = Table(
    "runnel_workers",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("kind", String(20), nullable=False),  # worker, service
    Column("owner", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("started_at", String(32), nullable=False),
    Column("renewed_at", String(32), nullable=False),
    Column("detail", Text, nullable=False),  # JSON: its capabilities and health
)
leases = Table(
    "runnel_leases",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("owner", Text, nullable=False),
    Column("token", String(32), nullable=False),
    Column("renewed_at", String(32), nullable=False),
)
# Schedules: their cursors, and whether a user paused them.
schedules = Table(
    "runnel_schedules",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("declared", Text, nullable=False),  # JSON
    Column("cursor", Text, nullable=False),  # JSON: the last slot queued, or the table versions last seen
    Column("paused_at", String(32), nullable=True),
    Column("paused_by", Text, nullable=True),
    Column("seen_at", String(32), nullable=False),  # when it was last declared
    Column("gone_at", String(32), nullable=True),  # since when it is no longer declared
)
backfills = Table(
    "runnel_backfills",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("branch", String(63), nullable=False),
    Column("wish", Text, nullable=False),  # JSON
    Column("author", Text, nullable=False),
    Column("state", String(20), nullable=False),  # running, or paused
    Column("made_at", String(32), nullable=False),
)
tokens = Table(
    "runnel_tokens",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("scope", String(20), nullable=False),
    Column("made_at", String(32), nullable=False),
    Column("revoked_at", String(32), nullable=True),
    Column("tables", Text, nullable=True),  # JSON: patterns of the tables it grants access to; null for all
    Column("branch", String(63), nullable=True),  # the branch it grants access to; null for all
    Column("sources", Text, nullable=True),  # JSON: the sources that a token of scope push may push events to
    Column("id", String(63), nullable=False),  # never used again, unlike the name
    Column("expires_at", String(32), nullable=True),  # null for never
    Column("last_used_at", String(32), nullable=True),
    Column("previous_hash", String(64), nullable=True),  # of the text before the last rotation
    Column("previous_until", String(32), nullable=True),  # until when that text is accepted
    Index("runnel_tokens_previous", "previous_hash"),
)
# Responses to requests with an Idempotency-Key: a repeated request gets the same response.
answers = Table(
    "runnel_answers",
    metadata,
    Column("key", String(200), primary_key=True),
    Column("request", String(64), nullable=False),  # its hash
    Column("status", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", String(32), nullable=False),
)
# Declarations of a project's tables, sources, sinks and alerts: the service does not load the flow.
declared = Table(
    "runnel_declared",
    metadata,
    Column("kind", String(10), primary_key=True),  # table, source, sink, alert
    Column("name", String(511), primary_key=True),
    Column("declared", Text, nullable=False),  # JSON
    Column("since", String(32), nullable=False),  # when it was first declared, or its deadline changed
)
# Alarms, numbered per key. An alarm whose `over_at` is null is still active. One that a person dismissed stays active,
# so that it is not raised again, until the problem is over or another run fails.
alarms = Table(
    "runnel_alarms",
    metadata,
    Column("key", String(300), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("level", String(10), nullable=False),  # warning, alarm
    Column("since", String(32), nullable=False),
    Column("detail", Text, nullable=False),  # JSON: description, blocked tables, what to do
    Column("over_at", String(32), nullable=True),
    Column("acknowledged_at", String(32), nullable=True),
    Column("acknowledged_by", String(200), nullable=True),
    Column("dismissed_at", String(32), nullable=True),
    Column("dismissed_by", String(200), nullable=True),
    Column("note", Text, nullable=True),  # of the person who acknowledged or dismissed it
    Index("runnel_alarms_over", "over_at"),
)
# Mutes: alarms with this key, of this kind, or of this table cause no notification until then.
mutes = Table(
    "runnel_mutes",
    metadata,
    Column("subject", String(300), primary_key=True),
    Column("kind", String(10), primary_key=True),  # alarm, kind, table
    Column("muted_until", String(32), nullable=False),
    Column("muted_by", String(200), nullable=False),
)
# Notifications about alarms, and how often each was tried. A service claims a try before it sends.
notifications = Table(
    "runnel_tellings",
    metadata,
    Column("key", String(300), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("alert", String(200), primary_key=True),
    Column("word", String(10), primary_key=True),  # warning, alarm, over
    Column("tries", Integer, nullable=False),
    Column("next_at", String(32), nullable=False),  # of the next try
    Column("told_at", String(32), nullable=True),
    Column("problem", Text, nullable=True),
)
# The code of runs: files, and manifests that name them by path. The hash of a manifest is the id of the code.
code = Table(
    "runnel_code",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("kind", String(10), nullable=False),  # file, manifest
    Column("content", LargeBinary, nullable=False),  # compressed
    Column("kept_at", String(32), nullable=False),  # when a run last started with it
)
# Inboxes of sources that events are pushed to. Events are numbered from 1; a transaction locks the inbox's row before
# it assigns numbers, so that none becomes visible after a greater one.
inboxes = Table(
    "runnel_inboxes",
    metadata,
    Column("source", String(511), primary_key=True),
    Column("last", BigInteger, nullable=False),  # the number of the newest event
    Column("gone", BigInteger, nullable=False),  # events up to this number were deleted
)
# Events as received; one row stores several events that were written together.
inbox = Table(
    "runnel_inbox",
    metadata,
    Column("source", String(511), primary_key=True),
    Column("last", BigInteger, primary_key=True),  # the number of the last event in it
    Column("first", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # a JSON object in each line
    Column("received_at", String(32), nullable=False),
    Column("mark", String(32), nullable=False),  # id of the transaction that wrote it
    Index("runnel_inbox_mark", "mark"),
)
# Keys of events and of push requests, by which repeated ones are recognized.
inbox_keys = Table(
    "runnel_inbox_keys",
    metadata,
    Column("source", String(511), primary_key=True),
    Column("key", String(40), primary_key=True),  # a hash
    Column("number", BigInteger, nullable=False),  # of the event, or of the last event of the request
    Column("request", String(64), nullable=True),  # the hash of a request; null if this is the key of an event
    Column("taken", Integer, nullable=True),  # events accepted and duplicates, as answered
    Column("known", Integer, nullable=True),
    Index("runnel_inbox_keys_number", "source", "number"),
)
