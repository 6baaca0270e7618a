"""Find the structure of JSON lines, in a form in which those of several groups of files can be merged.

A structure is what DuckDB's `json_group_structure` returns: an object of structures, a list with one structure, or the
name of a type; `JSON` stands for values of several shapes. But an object that is always empty, which DuckDB calls JSON
too, is `{}` here: merged with an object that has fields it has those fields.

DuckDB lists keys in the order in which its threads met them. Here, keys are in the order of the first lines of each
file, so that equal files make equal tables. And it keeps all lines in memory, several times, to find their structure.
Here, it gets some lines at a time, and what they have is merged.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from runnel.connect.files.file_patterns import KeyOrder
from runnel.lake.scan.duckdb_types import quote_literal

if TYPE_CHECKING:
    import duckdb

MIXED = "JSON"
_NUMBERS = ("UBIGINT", "BIGINT", "HUGEINT", "DOUBLE")
Structure = Any
"""A dict of structures, a list of one structure, or a text."""
HEAD_BYTES = 64 << 10  # the start of a file, which has its first lines
_FIRST_LINES = 10
CHUNK_BYTES = 4 << 20
_BATCH_ROWS = 2048  # as many as DuckDB reads at once
_CHUNK = "runnel_json_chunk"
_ELEMENT = ""  # stands for the elements of an array in a KeyOrder


@dataclass(frozen=True)
class JsonFacts:
    """The structure of each key of some JSON lines, and of the objects and arrays of each key with mixed values.

    `key_order` is the order of keys in the first lines of their files.
    """

    keys: dict[str, Structure]
    objects: dict[str, Structure]
    arrays: dict[str, Structure]
    key_order: KeyOrder = ()


def read_facts(con: "duckdb.DuckDBPyConnection", objects_sql: str, key_order: KeyOrder) -> JsonFacts:
    """Return the facts of the objects in the column `json` of a FROM clause."""
    facts = JsonFacts({}, {}, {}, key_order)
    with con.cursor() as chunk_con:
        for chunk in _iterate_chunks(con.sql(f"SELECT CAST(json AS VARCHAR) AS text FROM {objects_sql}")):
            chunk_con.register(_CHUNK, chunk)
            facts = merge_facts([facts, _read_chunk_facts(chunk_con, facts)])
            chunk_con.unregister(_CHUNK)
    return facts


def _iterate_chunks(lines: "duckdb.DuckDBPyRelation") -> Iterator[pa.Table]:
    """Yield lines in chunks of about CHUNK_BYTES."""
    batches: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in cast("Iterable[pa.RecordBatch]", lines.to_arrow_reader(_BATCH_ROWS)):
        batches.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= CHUNK_BYTES:
            yield pa.Table.from_batches(batches)
            batches, waiting_bytes = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _read_chunk_facts(con: "duckdb.DuckDBPyConnection", known_facts: JsonFacts) -> JsonFacts:
    """Return the facts of a chunk; keys with mixed values in earlier chunks need no second look."""
    objects_sql = f"(SELECT CAST(text AS JSON) AS json FROM {_CHUNK})"
    [keys] = _read_structures(con, ["json"], objects_sql)
    keys = keys if isinstance(keys, dict) else {}
    keys = {
        name: _mark_empty_objects(con, objects_sql, (name,), structure, known_facts.keys.get(name))
        for name, structure in keys.items()
    }
    mixed_names = [name for name, structure in keys.items() if structure == MIXED]
    values = [f"json_extract(json, {quote_literal(make_json_pointer(name))})" for name in mixed_names]
    expressions = [
        f"CASE WHEN json_type({value}) = '{kind}' THEN {value} END" for kind in ("OBJECT", "ARRAY") for value in values
    ]
    shapes = _read_structures(con, expressions, objects_sql)
    objects, arrays = (
        {
            name: _mark_empty_objects(con, objects_sql, (name,), shape, known_shapes.get(name))
            for name, shape in zip(mixed_names, kind_shapes, strict=True)
            if shape not in (None, "NULL")
        }
        for kind_shapes, known_shapes in (
            ([{} if shape == MIXED else shape for shape in shapes[: len(mixed_names)]], known_facts.objects),
            (shapes[len(mixed_names) :], known_facts.arrays),
        )
    )
    return JsonFacts(keys, objects, arrays)


def merge_facts(facts: Iterable[JsonFacts]) -> JsonFacts:
    """Return the facts of all lines together; they are in the order of the files."""
    key_order: KeyOrder = ()
    keys: dict[str, Structure] = {}
    objects: dict[str, Structure] = {}
    arrays: dict[str, Structure] = {}
    for unit_facts in facts:
        key_order = merge_key_orders(key_order, unit_facts.key_order)
        for name, structure in unit_facts.keys.items():
            keys[name] = merge_structures(keys[name], structure) if name in keys else structure
            shapes = {**unit_facts.objects, **({name: structure} if isinstance(structure, dict) else {})}
            lists = {**unit_facts.arrays, **({name: structure} if isinstance(structure, list) else {})}
            for merged, unit_shapes in ((objects, shapes), (arrays, lists)):
                if name in unit_shapes:
                    shape = unit_shapes[name]
                    merged[name] = merge_structures(merged[name], shape) if name in merged else shape
    mixed_names = {name for name, structure in keys.items() if structure == MIXED}
    return JsonFacts(
        keys,
        {name: shape for name, shape in objects.items() if name in mixed_names},
        {name: shape for name, shape in arrays.items() if name in mixed_names},
        key_order,
    )


def sort_keys(facts: JsonFacts) -> JsonFacts:
    """Return facts with all keys in their order."""
    orders = dict(facts.key_order)
    objects, arrays = (
        {name: _sort_structure(shape, orders.get(name, ())) for name, shape in shapes.items()}
        for shapes in (facts.objects, facts.arrays)
    )
    return JsonFacts(_sort_structure(facts.keys, facts.key_order), objects, arrays, facts.key_order)


def _sort_structure(structure: Structure, key_order: KeyOrder) -> Structure:
    """Return a structure with the keys of an order first; the others follow by name."""
    orders = dict(key_order)
    if isinstance(structure, list):
        return [_sort_structure(structure[0], orders.get(_ELEMENT, ()))]
    if not isinstance(structure, dict):
        return structure
    names = [name for name in orders if name in structure] + sorted(name for name in structure if name not in orders)
    return {name: _sort_structure(structure[name], orders.get(name, ())) for name in names}


def read_key_order(head: bytes, encoding: str = "utf-8") -> KeyOrder:
    r"""Return the keys of the first lines of a file that starts with `head`, in order of appearance.

    >>> read_key_order(b'{"b": 1, "a": [{"y": 2}, {"x": 1}]}\n{broken\n{"c": {}, "a": null}')
    (('b', ()), ('a', (('', (('y', ()), ('x', ()))),)), ('c', ()))
    """
    key_order: KeyOrder = ()
    for line in head.split(b"\n", _FIRST_LINES)[:_FIRST_LINES]:
        try:
            value = json.loads(line.decode(encoding))
        except (ValueError, RecursionError):  # a bad row, or a line that is cut off
            continue
        key_order = merge_key_orders(key_order, _list_keys(value))
    return key_order


def _list_keys(value: Any) -> KeyOrder:
    if isinstance(value, dict):
        return tuple((name, _list_keys(inner)) for name, inner in value.items())
    if not isinstance(value, list):
        return ()
    elements: KeyOrder = ()
    for inner in value:
        elements = merge_key_orders(elements, _list_keys(inner))
    return ((_ELEMENT, elements),)


def merge_key_orders(left: KeyOrder, right: KeyOrder) -> KeyOrder:
    """Return all keys, those of `left` first.

    >>> merge_key_orders((("a", ()), ("b", ())), (("c", ()), ("a", (("x", ()),))))
    (('a', (('x', ()),)), ('b', ()), ('c', ()))
    """
    if left == right or not right:
        return left
    merged = dict(left)
    for name, order in right:
        merged[name] = merge_key_orders(merged.get(name, ()), order)
    return tuple(merged.items())


def merge_structures(left: Structure, right: Structure) -> Structure:
    """Return the structure of values that have one of two structures.

    >>> merge_structures({"a": "UBIGINT"}, {"a": "DOUBLE", "b": ["NULL"]}), merge_structures("VARCHAR", "UBIGINT")
    ({'a': 'DOUBLE', 'b': ['NULL']}, 'JSON')
    """
    if left == right or right == "NULL":
        return left
    if left == "NULL":
        return right
    if isinstance(left, dict) and isinstance(right, dict):
        merged = {name: merge_structures(kind, right[name]) if name in right else kind for name, kind in left.items()}
        return merged | {name: kind for name, kind in right.items() if name not in left}
    if isinstance(left, list) and isinstance(right, list):
        return [merge_structures(left[0], right[0])]
    if left in _NUMBERS and right in _NUMBERS:
        return "DOUBLE" if "DOUBLE" in (left, right) else "HUGEINT"
    return MIXED


def make_json_pointer(name: str) -> str:
    """Return the JSON pointer of a key.

    >>> make_json_pointer("a/b~c")
    '/a~1b~0c'
    """
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _read_structures(con: "duckdb.DuckDBPyConnection", values: list[str], objects_sql: str) -> list[Structure]:
    if not values:
        return []
    expressions = ", ".join(f"json_group_structure({value})" for value in values)
    texts = con.execute(f"SELECT {expressions} FROM {objects_sql}").fetchall()[0]
    return [json.loads(text) if text else None for text in texts]


def _mark_empty_objects(
    con: "duckdb.DuckDBPyConnection",
    objects_sql: str,
    path: tuple[str | None, ...],
    structure: Structure,
    known: Structure,
) -> Structure:
    """Return a structure with `{}` for objects that are all empty; `path` has None for the elements of a list.

    Where the structure of earlier lines is `known` to be mixed, it stays mixed.
    """
    if isinstance(structure, dict):
        known_fields = known if isinstance(known, dict) else {}
        return {
            name: _mark_empty_objects(con, objects_sql, (*path, name), kind, known_fields.get(name))
            for name, kind in structure.items()
        }
    if isinstance(structure, list):
        known_element = known[0] if isinstance(known, list) else None
        return [_mark_empty_objects(con, objects_sql, (*path, None), structure[0], known_element)]
    if structure == MIXED != known and set(_list_value_types(con, objects_sql, path)) == {"OBJECT"}:
        return {}
    return structure


def _list_value_types(
    con: "duckdb.DuckDBPyConnection", objects_sql: str, path: tuple[str | None, ...]
) -> Iterator[str]:
    """Yield the types of all values at a path, without null."""
    steps = "".join("[*]" if name is None else f'."{_escape_key(name)}"' for name in path)
    values = f"json_extract(json, {quote_literal('$' + steps)})"
    listed = values if None in path else f"[{values}]"
    types = con.execute(
        f"SELECT DISTINCT json_type(v) FROM (SELECT unnest({listed}) AS v FROM {objects_sql})"
    ).fetchall()
    return (kind for (kind,) in types if kind not in (None, "NULL"))


def _escape_key(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
