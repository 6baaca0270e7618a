"""The structure of JSON lines is that of all lines, however they are divided, and finding it takes little memory."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.connect.files import json_structure
from runnel.connect.files.file_patterns import JSONL, LocalFile
from runnel.connect.files.json_structure import JsonFacts, read_facts, sort_keys
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.open_files import describe_unreadable
from runnel.errors import RunnelError
from runnel.names import TableName

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([2**63, 1.5, "", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)
_LINES = st.lists(st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3), max_size=6)
_FIELDS = 'id": 1234567, "name": "some text that takes room", "day": "2026-01-01'


def _find_structure(lines: list[dict[str, Any]], chunk_rows: int, patch: pytest.MonkeyPatch) -> JsonFacts:
    patch.setattr(json_structure, "CHUNK_BYTES", 1)
    patch.setattr(json_structure, "_BATCH_ROWS", chunk_rows)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE lines (json JSON)")
        for line in lines:
            connection.execute("INSERT INTO lines VALUES (?)", [json.dumps(line)])
        return sort_keys(read_facts(connection, "lines", ()))


@given(lines=_LINES)
def test_chunks_have_the_structure_of_all_lines(lines: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        facts = _find_structure(lines, 1, patch)
        assert facts == _find_structure(lines, 100, patch)
    assert set(facts.keys) == {key for line in lines for key in line}


def test_memory_does_not_grow_with_the_lines(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text(f'{{"{_FIELDS}"}}\n' * 1_000_000)
    with duckdb.connect(config={"memory_limit": "128MiB", "threads": 1}) as connection:
        objects = f"read_ndjson_objects('{file}')"
        facts = read_facts(connection, objects, ())
        assert list(facts.keys) == ["id", "name", "day"]
        # All at once, the same lines need more than that.
        with pytest.raises(duckdb.OutOfMemoryException):
            connection.execute(f"SELECT json_group_structure(json) FROM {objects}").fetchall()


def test_missing_memory_is_not_blamed_on_the_file() -> None:
    request = LoadRequest(TableName("ods", "lines"), (LocalFile("lines.jsonl", "/lines.jsonl", 1, 0.0),), JSONL)
    with pytest.raises(RunnelError) as caught:
        describe_unreadable(duckdb.OutOfMemoryException("failed to allocate data"), request)
    assert caught.value.code == "READ_OUT_OF_MEMORY"
    assert "spark.executor.memory" in str(caught.value.fix)
