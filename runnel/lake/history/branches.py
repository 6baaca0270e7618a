"""Create, list and delete branches: a branch is a catalog name in Iceberg, and a fork copies rows, not data."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake, did_you_mean
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.catalog.migrate import MAIN_BRANCH
from runnel.lake.history.commits import Commit, LakeState, find_commit, read_state
from runnel.model.table_version import TableVersion
from runnel.names import TableName, validate_branch_name


@dataclass(frozen=True)
class Branch:
    """A named, moving line of commits. `from_commit` is where it was forked off."""

    name: str
    line: str
    head: str
    created_at: str
    author: str
    from_commit: str | None


def list_branches(connection: Connection) -> list[Branch]:
    """Return all branches, main first."""
    rows = connection.execute(_branch_query()).all()
    all_branches = [Branch(row.name, row.line, row.head, row.created_at, row.author, row.from_commit) for row in rows]
    return sorted(all_branches, key=lambda branch: (branch.name != "main", branch.name))


def get_branch(connection: Connection, name: str) -> Branch:
    """Return the branch called `name`, or raise with the nearest name."""
    row = connection.execute(_branch_query().where(schema.branches.c.name == name)).first()
    if row is not None:
        return Branch(row.name, row.line, row.head, row.created_at, row.author, row.from_commit)
    raise Mistake(
        "BRANCH_UNKNOWN",
        f"there is no branch `{name}`" + did_you_mean(name, (existing.name for existing in list_branches(connection))),
        fix="`runnel branch` lists them; `runnel branch NAME` creates one",
    )


def fork_branch(db: Database, name: str, commit: Commit, author: str) -> Branch:
    """Create a branch whose first version is `commit`: rows are written, no data is copied."""
    validate_branch_name(name)
    line = uuid.uuid4().hex

    def work(connection: Connection) -> Branch:
        lock_lake(connection)
        if (created := _find_branch_of_line(connection, line)) is not None:
            return created  # an earlier attempt took effect, and its acknowledgement was lost
        if connection.execute(sa.select(schema.branches.c.name).where(schema.branches.c.name == name)).first():
            raise Mistake(
                "BRANCH_EXISTS",
                f"branch `{name}` already exists",
                fix="choose another name" + (f", or delete it: runnel branch -d {name}" if name != "main" else ""),
            )
        if connection.execute(sa.select(schema.tags.c.name).where(schema.tags.c.name == name)).first():
            fix = f"choose another name, or delete the tag: runnel tag -d {name}"
            raise Mistake("BRANCH_IS_TAG", f"there is a tag called `{name}`", fix=fix)
        current = find_commit(connection, commit.id)
        if current is None or current.expired_at:
            raise Mistake("REF_EXPIRED", f"the contents of commit {commit.id} are gone: its retention ended")
        now = db.now(connection)
        origin = {"from_commit": commit.id, "from_line": commit.line, "from_seq": commit.seq}
        connection.execute(schema.lines.insert().values(id=line, branch=name, **origin))
        values = {"name": name, "line": line, "head": commit.id, "created_at": now, "author": author}
        connection.execute(schema.branches.insert().values(values))
        source_branch = connection.execute(
            sa.select(schema.branches.c.name).where(schema.branches.c.head == commit.id, schema.branches.c.name != name)
        ).scalar()
        if source_branch is not None:
            _copy_layers(connection, source_branch, name)
        fill_catalog(
            connection,
            name,
            read_head_state(connection, source_branch) if source_branch else read_state(connection, commit),
        )
        failpoints.reach(failpoints.FORK_BEFORE_COMMIT)
        return Branch(name, line, commit.id, now, author, commit.id)

    return db.write(work)


def delete_branch(db: Database, name: str) -> None:
    """Delete a branch. Its commits, and the data that only they have, stay until their retention ends."""
    if name == MAIN_BRANCH:
        raise Mistake(
            "BRANCH_MAIN", "the branch `main` can't be deleted", fix="revert what you don't want: runnel revert COMMIT"
        )

    from runnel.lake.history.adopt import adopt_in_transaction

    deleted_line: list[str] = []  # the line that an earlier attempt deleted, if it took effect

    def work(connection: Connection) -> None:
        lock_lake(connection)
        if deleted_line and _find_branch_of_line(connection, deleted_line[0]) is None:
            return
        existing = get_branch(connection, name)
        deleted_line[:] = [existing.line]
        adopt_in_transaction(db, connection, existing)  # so that changes by another engine are not lost
        connection.execute(schema.branches.delete().where(schema.branches.c.name == name))
        connection.execute(schema.heads.delete().where(schema.heads.c.branch == name))
        clear_catalog(connection, name)

    db.write(work)


def read_catalog_locations(connection: Connection, name: str) -> dict[TableName, str]:
    """Return the metadata locations that Iceberg's catalog has for a catalog name: a branch, or a slot."""
    columns = schema.iceberg_tables.c
    rows = connection.execute(
        sa.select(columns.table_namespace, columns.table_name, columns.metadata_location).where(
            columns.catalog_name == name
        )
    )
    return {TableName(row.table_namespace, row.table_name): row.metadata_location for row in rows}


def find_branch_at(connection: Connection, commit: Commit) -> str | None:
    """Return a branch whose newest commit this is, or None."""
    query = sa.select(schema.branches.c.name).where(schema.branches.c.head == commit.id)
    return connection.execute(query).scalars().first()


def read_head_state(connection: Connection, name: str, tables: Iterable[TableName] | None = None) -> LakeState:
    """Return the versions that Runnel last published to a branch, of all tables or of some."""
    columns = schema.heads.c
    query = sa.select(columns.table_name, columns.location, columns.content).where(columns.branch == name)
    if tables is not None:
        query = query.where(columns.table_name.in_([str(table) for table in tables]))
    rows = connection.execute(query)
    return {TableName.parse_unchecked(row.table_name): TableVersion(row.location, row.content) for row in rows}


def fill_catalog(connection: Connection, name: str, state: LakeState) -> None:
    """Write `state` to a catalog name that is empty, and record it as the branch's head."""
    rows = [
        {"branch": name, "table_name": str(table), "location": version.location, "content": version.content}
        for table, version in state.items()
    ]
    if rows:
        connection.execute(schema.heads.insert(), rows)
    register_tables(connection, name, {table: version.location for table, version in state.items()})


def register_tables(connection: Connection, name: str, locations: dict[TableName, str]) -> None:
    """Insert tables and their layers under a catalog name that does not have these tables."""
    if not locations:
        return
    rows = [
        {
            "catalog_name": name,
            "table_namespace": table.layer,
            "table_name": table.name,
            "metadata_location": location,
            "iceberg_type": "TABLE",
        }
        for table, location in locations.items()
    ]
    connection.execute(schema.iceberg_tables.insert(), rows)
    ensure_layers(connection, name, {table.layer for table in locations})


def ensure_layers(connection: Connection, name: str, layers: set[str]) -> None:
    """Create the layers that a catalog name does not have yet."""
    columns = schema.iceberg_namespaces.c
    existing_layers = set(
        connection.execute(sa.select(columns.namespace).where(columns.catalog_name == name)).scalars()
    )
    rows = [
        {"catalog_name": name, "namespace": layer, "property_key": "exists", "property_value": "true"}
        for layer in sorted(layers - existing_layers)
    ]
    if rows:
        connection.execute(schema.iceberg_namespaces.insert(), rows)


def clear_catalog(connection: Connection, name: str) -> None:
    """Remove every row of a catalog name."""
    for table in (schema.iceberg_tables, schema.iceberg_namespaces):
        connection.execute(table.delete().where(table.c.catalog_name == name))


def _branch_query() -> "sa.Select[tuple[str, str, str, str, str, str | None]]":
    columns = schema.branches.c
    return sa.select(
        columns.name, columns.line, columns.head, columns.created_at, columns.author, schema.lines.c.from_commit
    ).join(schema.lines, schema.lines.c.id == columns.line)


def _find_branch_of_line(connection: Connection, line: str) -> Branch | None:
    row = connection.execute(_branch_query().where(schema.branches.c.line == line)).first()
    return Branch(row.name, row.line, row.head, row.created_at, row.author, row.from_commit) if row else None


def _copy_layers(connection: Connection, source: str, name: str) -> None:
    """Copy layers with their properties, including layers without tables."""
    layers = schema.iceberg_namespaces.c
    copied_columns = [layers.namespace, layers.property_key, layers.property_value]
    query = sa.select(sa.literal(name), *copied_columns).where(layers.catalog_name == source)
    columns = ["catalog_name", *(column.name for column in copied_columns)]
    connection.execute(schema.iceberg_namespaces.insert().from_select(columns, query))
