"""The life of files, in every format and packing, on disk and in an object store."""

import json
from pathlib import Path

import pytest

from runnel.connect.ingest import failpoints
from tests.connect.files.test_formats import FORMATS, PACKED
from tests.connect.lifecycle.source_lifecycle import STEPS, Kind, Life, Row
from tests.run.project import Project
from tests.servers.s3 import Store

BAD = {
    "csv": b"{good}x,bad\n",
    "jsonl": b'{good}{"id": "x"}\n',
    "json": b'{good}, {"id": "x"}]',
    "xml": b"{good}<order><id>x</id></order></orders>",
}
ENDS = {"json": b"]", "xml": b"</orders>"}
POINTS = (failpoints.READ, failpoints.STAGED)


class InFiles(Kind):
    """Two rows in each file; a file that changes has others."""

    def __init__(self, ending: str, root: Path) -> None:
        super().__init__(ending.replace(".", "_"))
        self.ending = ending
        self.form, _, self.packing = ending.partition(".")
        self.root = root
        self.there: dict[int, list[Row]] = {}

    def declare(self) -> str:
        schema = FORMATS[self.form][1]
        said = f', schema="{schema}"' if schema else ""
        return f'rn.source("{self.table}", rn.files("{self.glob}"{said}), on_bad="quarantine")'

    @property
    def glob(self) -> str:
        return f"in/{self.name}/*.{self.ending}"

    def put(self, number: int, name: str) -> None:
        self.there[number] = [(number, name), (-number, name)]
        self.write(number, self.made(self.there[number]))

    def spoil(self, number: int, name: str) -> int:
        """Have a bad row among good ones, or, where all rows of a file are of its types, half a file."""
        self.put(number, name)
        good = FORMATS[self.form][0](self.there[number])
        if self.form in BAD:
            bad = BAD[self.form].replace(b"{good}", good.removesuffix(ENDS.get(self.form, b"")))
            self.write(number, self.packed(bad))
        if self.form in BAD and not self.packing:
            return 1
        whole = self.made([(line, f"{line * 7919 % 9973:x}") for line in range(3000)])
        self.write(number + 1000, whole[: len(whole) // 2])
        return 2 if self.packing else 1

    def rows(self) -> list[Row]:
        return [row for rows in self.there.values() for row in rows]

    def made(self, rows: list[Row]) -> bytes:
        return self.packed(FORMATS[self.form][0](rows))

    def packed(self, raw: bytes) -> bytes:
        return PACKED[self.packing](raw) if self.packing else raw

    def write(self, number: int, raw: bytes) -> None:
        path = self.root / "in" / self.name / f"{number}.{self.ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


class InLines(InFiles):
    """A row is a line; one that is not UTF-8 is bad."""

    columns = "line, value"

    def declare(self) -> str:
        return f'rn.source("{self.table}", rn.files("{self.glob}"), on_bad="quarantine")'

    def put(self, number: int, name: str) -> None:
        self.there[number] = [(1, f"{number}"), (2, name)]
        self.write(number, f"{number}\n{name}\n".encode())

    def spoil(self, number: int, name: str) -> int:
        self.put(number, name)
        self.write(number, f"{number}\n{name}\n".encode() + b"caf\xe9\n")
        return 1


class Whole(InFiles):
    """A row is a file. No file is bad, whatever is in it."""

    columns = "path, content"

    def declare(self) -> str:
        return f'rn.source("{self.table}", rn.files("{self.glob}", format="binary"), on_bad="quarantine")'

    def put(self, number: int, name: str, raw: bytes = b"") -> None:
        self.there[number] = [(f"in/{self.name}/{number}.{self.ending}", raw or name.encode())]
        self.write(number, raw or name.encode())

    def spoil(self, number: int, name: str) -> int:
        self.put(number, name, b"\x00\xff" + name.encode())
        return 0


class InStore(InFiles):
    """Files that are objects of S3."""

    def __init__(self, store: Store, root: Path) -> None:
        super().__init__("csv", root)
        self.name = "s3"
        self.store = store

    @property
    def glob(self) -> str:
        return f"s3://{self.store.bucket}/life/*.csv"

    def write(self, number: int, raw: bytes) -> None:
        self.store.put(f"life/{number}.csv", raw)


IN_WORDS = ("csv", "jsonl", "json", "xml")
IN_COLUMNS = ("parquet", "avro", "orc")
PACKINGS = ("csv.gz", "jsonl.zst", "csv.bz2", "xml.xz", "csv.zip")
KINDS = (*(ending.replace(".", "_") for ending in (*IN_WORDS, *IN_COLUMNS, *PACKINGS)), "txt", "bin", "s3")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, s3: Store) -> Life:
    root = tmp_path_factory.mktemp("life")
    project = Project(root)
    storage = "\n".join(f'"{key}" = {json.dumps(value)}' for key, value in s3.storage.items())
    project.write("runnel.toml", f'[project]\nname = "shop"\n[lake.storage]\n{storage}\n')
    circles: list[list[Kind]] = [[InFiles(each, root) for each in some] for some in (IN_WORDS, IN_COLUMNS, PACKINGS)]
    circles[0].append(InLines("txt", root))
    circles[1].append(Whole("bin", root))
    circles.append([InStore(s3, root)])
    return Life(project, circles, dict.fromkeys(POINTS, len(circles))).live()


@pytest.mark.crash
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_life(life: Life, kind: str, step: str) -> None:
    life.check(kind, step)
