"""Tags: names that stay at one commit, and keep its contents for ever."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake, nearest
from runnel.lake.catalog import schema
from runnel.lake.catalog.lock import lock
from runnel.lake.history.commits import find
from runnel.lake.history.refs import readable
from runnel.names import tag_name

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Tag:
    """A name for one commit."""

    name: str
    commit: str
    author: str
    at: str


def tag(store: "Store", name: str, ref: str = "main", *, force: bool = False) -> Tag:
    """Name the commit that `ref` is now. A tag that exists is moved only by force."""
    tag_name(name)
    wanted = store.commit(ref)

    def work(connection: Connection) -> Tag:
        lock(connection)
        if connection.execute(sa.select(schema.branches.c.name).where(schema.branches.c.name == name)).first():
            raise Mistake("TAG_IS_BRANCH", f"there is a branch called `{name}`", fix="choose another name for the tag")
        current = find(connection, wanted.id)
        readable(current or wanted)  # retention may have ended since the ref was looked up
        known = _find(connection, name)
        if known is not None and known.commit == wanted.id:
            return known
        if known is not None and not force:
            raise _taken(known, wanted.id)
        connection.execute(schema.tags.delete().where(schema.tags.c.name == name))
        made = Tag(name, wanted.id, store.author, store.db.now(connection))
        values = {"name": name, "commit_id": made.commit, "author": made.author, "at": made.at}
        connection.execute(schema.tags.insert().values(values))
        return made

    return store.db.write(work)


def tags(connection: Connection) -> list[Tag]:
    """Return all tags, by name."""
    rows = connection.execute(sa.select(schema.tags).order_by(schema.tags.c.name))
    return [Tag(row.name, row.commit_id, row.author, row.at) for row in rows]


def delete(store: "Store", name: str) -> Tag:
    """Delete a tag and return what it was. Its commit then stays as long as any other."""
    deleted: list[Tag] = []  # by an earlier attempt, of which it is unknown whether it took effect

    def work(connection: Connection) -> Tag:
        lock(connection)
        known = _find(connection, name)
        if deleted and known != deleted[0]:
            return deleted[0]  # it did; a tag of that name is another's by now
        if known is None:
            close = nearest(name, (other.name for other in tags(connection)))
            what = f"there is no tag `{name}`" + (f"; close: `{close}`" if close else "")
            raise Mistake("TAG_UNKNOWN", what, fix="`runnel tag` lists them")
        connection.execute(schema.tags.delete().where(schema.tags.c.name == name))
        deleted[:] = [known]
        return known

    return store.db.write(work)


def _find(connection: Connection, name: str) -> Tag | None:
    row = connection.execute(sa.select(schema.tags).where(schema.tags.c.name == name)).first()
    return Tag(row.name, row.commit_id, row.author, row.at) if row else None


def _taken(known: Tag, wanted: str) -> Mistake:
    return Mistake(
        "TAG_EXISTS",
        f"tag `{known.name}` is at commit {known.commit[:8]}, not at {wanted[:8]}",
        fix=f"choose another name, or move it: runnel tag --force {known.name} {wanted[:8]}",
    )
