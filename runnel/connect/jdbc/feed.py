"""The feed of a database: a table or a query, read whole when it has changed, or by what came since a watermark."""

from pathlib import Path

from runnel.connect.feed.protocol import Fetched, Held, News, Progress, State
from runnel.connect.jdbc import full_read, watermark_read
from runnel.connect.jdbc.database import Database, database_of
from runnel.connect.jdbc.table_inspection import Look, look
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Source


class JdbcFeed:
    """The feed of `rn.jdbc`. Everything that one call says or reads is of one moment of the database."""

    def __init__(self, source: Source, origin: Jdbc, root: Path) -> None:
        self._source = source
        self._origin = origin
        self._root = root
        self._held: Held | None = None

    def compare(self, held: Held) -> None:
        """Remember the table that rows are read for."""
        self._held = held

    def news(self, state: State | None) -> News:
        """Return what has changed since a state: by a checksum that the database computes, or by the watermark."""
        with self._database() as database:
            looked = self._look(database)
            ask = watermark_read.news if looked.mark is not None else full_read.news
            return ask(database, looked, _same(looked, state), is_first=state is None)

    def fetch(self, state: State | None, news: News, folder: Path, tell: Progress) -> Fetched:
        """Read into Parquet what has changed, as it is now: it may be more than was announced."""
        tell("connecting", 0, None)
        with self._database() as database:
            looked = self._look(database)
            known = _same(looked, state)
            if looked.mark is None:
                return full_read.fetch(database, looked, folder, tell, self._held if known is not None else None)
            return watermark_read.fetch(database, looked, known, folder, tell, self._held)

    def _database(self) -> Database:
        return database_of(self._origin, self._root, str(self._source.place))

    def _look(self, database: Database) -> Look:
        return look(database, self._source, self._origin)


def _same(looked: Look, state: State | None) -> State | None:
    """Return the state, unless rows that were read by another declaration led to it."""
    return state if state is not None and state.get("declared") == looked.declared else None
