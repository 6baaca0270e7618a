"""Read Spark's golden files: the statements of each, with the schema and the output that Spark gave."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

_RESULTS, _INPUTS = "sql-tests/results/", "sql-tests/inputs/"
_SEGMENT = re.compile(r"^-- !query.*\n", re.MULTILINE)
_SETTING = re.compile(r"^--SET\b", re.MULTILINE)
_IMPORT = re.compile(r"^--IMPORT\s+(\S+)", re.MULTILINE)
_QUERY = re.compile(r"(\s|/\*.*?\*/|--[^\n]*\n|\()*(select|with|values|from|table)\b", re.IGNORECASE | re.DOTALL)
_WRITE = re.compile(r"\binsert\s+(into|overwrite)\b", re.IGNORECASE)
_CONF = re.compile(r"\s*(set|reset)\b", re.IGNORECASE)
_FOLDERS = {
    "nonansi": "ANSI mode off",
    "timestampNTZ": "another default type of timestamps",
    "udf": "functions of a user",
    "udaf": "functions of a user",
    "udtf": "functions of a user",
    "scripting": "scripts of several statements",
}


@dataclass(frozen=True)
class Statement:
    """One statement of a golden file. `schema` is empty and `failed` true if Spark raised an error.

    `setting` tells why its answer holds under other settings only, if it does.
    """

    file: str
    number: int
    sql: str
    schema: str
    output: str
    setting: str | None

    @property
    def is_query(self) -> bool:
        """Tell whether it is a single SELECT rather than something that prepares one."""
        return _QUERY.match(self.sql) is not None and not _WRITE.search(self.sql)

    @property
    def failed(self) -> bool:
        """Tell whether Spark raised an error."""
        return self.schema in ("", "struct<>") and bool(re.match(r"(org|java|scala)\.[\w.$]+", self.output))

    @property
    def name(self) -> str:
        """The file and the statement's number in it, from 1 on."""
        return f"{self.file}:{self.number}"


def golden_files(jar: Path) -> Iterator[list[Statement]]:
    """Yield the statements of each golden file, in order."""
    with ZipFile(jar) as archive:
        names = set(archive.namelist())
        for name in sorted(names):
            if not name.startswith(_RESULTS) or not name.endswith(".sql.out"):
                continue
            file = name.removeprefix(_RESULTS).removesuffix(".out")
            inputs = [_INPUTS + file] if _INPUTS + file in names else []
            written = "".join(archive.read(path).decode() for path in inputs)
            imports = [_INPUTS + path for path in _IMPORT.findall(written) if _INPUTS + path in names]
            written += "".join(archive.read(path).decode() for path in imports)
            setting = _FOLDERS.get(file.split("/")[0]) or ("settings of the file" if _SETTING.search(written) else None)
            yield list(_statements(file, archive.read(name).decode(), setting))


def _statements(file: str, text: str, setting: str | None) -> Iterator[Statement]:
    segments = _SEGMENT.split(text)[1:]
    for number, (sql, schema, output) in enumerate(zip(*[iter(segments)] * 3, strict=True), start=1):
        if _CONF.match(sql) and setting is None:
            setting = "settings of a statement before"
        yield Statement(file, number, sql.strip(), schema.strip(), output.rstrip(), setting)
