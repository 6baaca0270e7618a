"""Every kind of sink as a place outside: what it holds can be looked at, and it can be made to refuse what comes.

A kind has several sinks in one project: one for each mode, format or way of asking.
"""

import json
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import sqlalchemy as sa

from runnel.connect.sinks.failpoints import ACCEPTED, REPLACING, SENDING
from tests.servers.s3 import Store

Row = tuple[int, str, str]
Rows = Counter[Row]
REFUSED = 13  # the id of an order that some sinks are made to refuse


def row_of(number: Any, day: Any, amount: Any) -> Row:
    """Return a row as it is compared, whatever a system calls its types."""
    return int(number), str(day), f"{float(amount):.2f}"


class Kind:
    """A kind of sink. `grows` are the sinks that nothing is ever removed from, `code` is what a refusal is called.

    `kills` are the points of a delivery, and at which of its passings each kills one process after another. What was
    killed is delivered before the next sink is, so that each sink that goes a path of its own is killed in turn.
    """

    grows: frozenset[str] = frozenset()
    kills: Mapping[str, Sequence[int]] = {SENDING: (1,), ACCEPTED: (1,)}
    code: str

    def lines(self) -> Sequence[str]:
        """Return what declares its sinks."""
        raise NotImplementedError

    def rows(self) -> dict[str, Rows]:
        """Return what each of its sinks holds outside; what came again with the same key counts once."""
        raise NotImplementedError

    def sent(self) -> list[tuple[str, Any]]:
        """Return each key with what came with it, in order, as often as it came; none where there are no keys."""
        return []

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Let it refuse what comes, while the block runs."""
        raise NotImplementedError
        yield

    def close(self) -> None:
        """End what it holds open."""


class Databases(Kind):
    """A table for each mode of `rn.jdbc`."""

    grows = frozenset({"append"})
    kills: Mapping[str, Sequence[int]] = {SENDING: (1, 2, 2), ACCEPTED: (1,)}  # twice would show in what grows
    code = "SINK_DATABASE"
    modes = ("append", "overwrite", "upsert")
    refuse = "alter table orders_{} add constraint refuses check (id <> {})"
    heal = "alter table orders_{} drop constraint refuses"

    def __init__(self, url: str, engine: sa.Engine) -> None:
        self._url = url
        self._engine = engine

    def lines(self) -> Sequence[str]:
        options = {mode: f'table="orders_{mode}", mode="{mode}"' for mode in self.modes}
        options["upsert"] += ', key="id"'
        return [sink(f'jdbc("{self._url}", {options[mode]})', mode) for mode in self.modes]

    def rows(self) -> dict[str, Rows]:
        with self._engine.connect() as connection:
            asked = ((mode, sa.text(f"select id, day, amount from orders_{mode}")) for mode in self.modes)
            return {mode: Counter(row_of(*row) for row in connection.execute(query)) for mode, query in asked}

    @contextmanager
    def refusing(self) -> Iterator[None]:
        self._execute(self.refuse)
        yield
        self._execute(self.heal)

    def _execute(self, statement: str) -> None:
        with self._engine.begin() as connection:
            for mode in self.modes:
                connection.exec_driver_sql(statement.format(mode, REFUSED))


class Sqlite(Databases):
    """SQLite, where a table gets no constraints later on."""

    refuse = (
        "create trigger refuses_{0} before insert on orders_{0} when new.id = {1}"
        " begin select raise(abort, 'an order that is refused'); end"
    )
    heal = "drop trigger refuses_{}"


class OneFile(Kind):
    """A file in each format; all of them go one path."""

    kills: Mapping[str, Sequence[int]] = {SENDING: (1, 2), ACCEPTED: (1,)}
    code = "SINK_FILE"
    endings = ("csv", "jsonl.zst", "json", "parquet")

    def __init__(self, root: Path) -> None:
        self._root = root
        self._export = root / "export"

    def lines(self) -> Sequence[str]:
        return [sink(f'files("export/orders.{one}")', one) for one in self.endings]

    def rows(self) -> dict[str, Rows]:
        assert {path.name for path in self._export.iterdir()} == {f"orders.{one}" for one in self.endings}
        return {one: _read(one.split(".")[0], [self._export / f"orders.{one}"]) for one in self.endings}

    @contextmanager
    def refusing(self) -> Iterator[None]:
        aside = self._export.rename(self._root / "aside")
        self._export.write_text("a file where the folder should be")
        yield
        self._export.unlink()
        aside.rename(self._export)


class Folder(OneFile):
    """A folder in each format, with a file for each day."""

    kills: Mapping[str, Sequence[int]] = {REPLACING: (1, 2), ACCEPTED: (1,)}
    layouts: Mapping[str, str] = {
        "csv": ', partition="day", compress="gz"',
        "jsonl": ', partition="day"',
        "json": ', partition="day"',
        "parquet": ', partition=["day"]',
    }

    def lines(self) -> Sequence[str]:
        return [sink(f'files("export/{one}/", format="{one}"{how})', one) for one, how in self.layouts.items()]

    def rows(self) -> dict[str, Rows]:
        return {one: self._listed(one) for one in self.layouts}

    def _listed(self, one: str) -> Rows:
        """Return the rows of the files that the manifest lists: they are all there are."""
        folder = self._export / one
        manifest = json.loads((folder / "_manifest.json").read_text())
        there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert there == {*manifest["files"], "_manifest.json"}
        found = _read(one, [folder / name for name in manifest["files"]])
        assert manifest["rows"] == found.total()
        return found


class Objects(Kind):
    """A file and a folder in an object store. What it holds is fetched to be looked at."""

    kills: Mapping[str, Sequence[int]] = {SENDING: (1,), REPLACING: (1, 2), ACCEPTED: (1,)}
    code = "SINK_FILE"

    def __init__(self, store: Store, root: Path) -> None:
        self._store = store
        self._root = root
        self._place = f"sinks-{uuid.uuid4().hex[:8]}"
        self._settle(store.storage)

    def lines(self) -> Sequence[str]:
        at = f"s3://{self._store.bucket}/{self._place}"
        return [
            sink(f'files("{at}/orders.csv.gz")', "file"),
            sink(f'files("{at}/days/", format="parquet", partition="day")', "folder"),
        ]

    def rows(self) -> dict[str, Rows]:
        """Return what is there: one file, and what the manifest lists, which is all there is."""
        with tempfile.TemporaryDirectory() as name:
            there = self._fetched(Path(name))
            days = {path.removeprefix("days/"): file for path, file in there.items() if path.startswith("days/")}
            manifest = json.loads(days.pop("_manifest.json").read_text())
            assert days.keys() == manifest["files"].keys() and there.keys() - {"orders.csv.gz"} == {
                f"days/{path}" for path in (*days, "_manifest.json")
            }
            found = _read("parquet", list(days.values()))
            assert manifest["rows"] == found.total()
            return {"file": _read("csv", [there["orders.csv.gz"]]), "folder": found}

    @contextmanager
    def refusing(self) -> Iterator[None]:
        self._settle({**self._store.storage, "s3.secret-access-key": "not-the-secret"})
        yield
        self._settle(self._store.storage)

    def _settle(self, storage: Mapping[str, str]) -> None:
        said = "\n".join(f'"{key}" = {json.dumps(value)}' for key, value in storage.items())
        (self._root / "runnel.toml").write_text(f'[project]\nname = "shop"\n[lake.storage]\n{said}\n')

    def _fetched(self, folder: Path) -> dict[str, Path]:
        found = {}
        for path, contents in self._store.objects(f"{self._place}/").items():
            found[path] = folder / path
            found[path].parent.mkdir(parents=True, exist_ok=True)
            found[path].write_bytes(contents)
        return found


def sink(target: str, name: str) -> str:
    """Return what declares a sink of the orders. It is tried once a run, so that no test waits."""
    return f'rn.sink("ods.orders", rn.{target}, name="{name}", retries=0)'


def _read(kind: str, paths: list[Path]) -> Rows:
    reader = {"csv": "read_csv", "parquet": "read_parquet"}.get(kind, "read_json")
    names = ", ".join(f"'{path}'" for path in paths)
    found = duckdb.sql(f"select id, day, amount from {reader}([{names}])").fetchall()
    return Counter(row_of(*row) for row in found)
