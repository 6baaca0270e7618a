"""Manage tags: names that point at one commit and retain its contents for ever."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.history.commits import find_commit
from runnel.lake.history.refs import check_retained
from runnel.names import validate_tag_name

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Tag:
    """A name for one commit."""

    name: str
    commit: str
    author: str
    at: str


def create_tag(store: "Store", name: str, ref: str = "main", *, force: bool = False) -> Tag:
    """Tag the commit that `ref` resolves to. An existing tag is moved only with `force`."""
    validate_tag_name(name)
    commit = store.commit(ref)

    def work(connection: Connection) -> Tag:
        lock_lake(connection)
        if connection.execute(sa.select(schema.branches.c.name).where(schema.branches.c.name == name)).first():
            raise Mistake("TAG_IS_BRANCH", f"there is a branch called `{name}`", fix="choose another name for the tag")
        current = find_commit(connection, commit.id)
        check_retained(current or commit)  # retention may have ended since the ref was looked up
        existing_tag = _find_tag(connection, name)
        if existing_tag is not None and existing_tag.commit == commit.id:
            return existing_tag
        if existing_tag is not None and not force:
            raise _tag_exists_error(existing_tag, commit.id)
        connection.execute(schema.tags.delete().where(schema.tags.c.name == name))
        new_tag = Tag(name, commit.id, store.author, store.db.now(connection))
        values = {"name": name, "commit_id": new_tag.commit, "author": new_tag.author, "at": new_tag.at}
        connection.execute(schema.tags.insert().values(values))
        return new_tag

    return store.db.write(work)


def list_tags(connection: Connection) -> list[Tag]:
    """Return all tags, by name."""
    rows = connection.execute(sa.select(schema.tags).order_by(schema.tags.c.name))
    return [Tag(row.name, row.commit_id, row.author, row.at) for row in rows]


def delete_tag(store: "Store", name: str) -> Tag:
    """Delete a tag and return it. Its commit is then retained only as long as any other."""
    deleted: list[Tag] = []  # the tag that an earlier attempt, with unknown outcome, deleted

    def work(connection: Connection) -> Tag:
        lock_lake(connection)
        existing_tag = _find_tag(connection, name)
        if deleted and existing_tag != deleted[0]:
            return deleted[0]  # that attempt succeeded; a tag of this name is a new one
        if existing_tag is None:
            what = f"there is no tag `{name}`" + did_you_mean(name, (other.name for other in list_tags(connection)))
            raise Mistake("TAG_UNKNOWN", what, fix="`runnel tag` lists them")
        connection.execute(schema.tags.delete().where(schema.tags.c.name == name))
        deleted[:] = [existing_tag]
        return existing_tag

    return store.db.write(work)


def _find_tag(connection: Connection, name: str) -> Tag | None:
    row = connection.execute(sa.select(schema.tags).where(schema.tags.c.name == name)).first()
    return Tag(row.name, row.commit_id, row.author, row.at) if row else None


def _tag_exists_error(existing_tag: Tag, commit_id: str) -> Mistake:
    return Mistake(
        "TAG_EXISTS",
        f"tag `{existing_tag.name}` is at commit {existing_tag.commit[:8]}, not at {commit_id[:8]}",
        fix=f"choose another name, or move it: runnel tag --force {existing_tag.name} {commit_id[:8]}",
    )
