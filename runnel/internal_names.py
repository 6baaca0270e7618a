"""Name the columns that Runnel's own queries add to those of a table, and the names that no new column may have.

Every such column is named here, and all names begin with a character that no column of a table can have: loads, sources
and tasks refuse column names with control characters. So internal names never collide with users' columns.
"""

from unicodedata import category

INTERNAL_MARK = "\x1f"
_WORDS = """
    file position path broken count deletes rank next text rows one two gained lost on back slice slices number times
    theirs side folder run bucket attempt
"""
INTERNAL_WORDS = frozenset(_WORDS.split())
ICEBERG_COLUMNS = frozenset(
    ("_file", "_pos", "_spec_id", "_partition", "_deleted", "_row_id", "_last_updated_sequence_number")
)
"""Iceberg's metadata columns, which say where a row is stored. Spark can't read a table that has a column so named."""


def internal_column(word: str, number: int | None = None) -> str:
    r"""Return the name of a column that exists only in Runnel's own queries.

    >>> internal_column("slice", 2)
    '\x1frunnel slice 2'
    """
    assert word in INTERNAL_WORDS, f"list {word!r} in runnel/internal_names.py"
    return f"{INTERNAL_MARK}runnel {word}" + ("" if number is None else f" {number}")


def is_internal(name: str) -> bool:
    """Tell whether a column name may belong to an internal column."""
    return name.startswith(INTERNAL_MARK)


def explain_reserved_name(name: str) -> str | None:
    """Return why no new column may have a name, or None where it may.

    >>> explain_reserved_name("_File"), explain_reserved_name("_path")
    ("which is the name of a column of Iceberg's own: Spark could not read the table", None)
    """
    if name.lower() in ICEBERG_COLUMNS:
        return "which is the name of a column of Iceberg's own: Spark could not read the table"
    if any(category(letter) == "Cc" for letter in name):
        return "which has characters that can't be printed"
    return None
