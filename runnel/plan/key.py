"""The key by which a result is known: what a task is, and what it read."""

import hashlib
from collections.abc import Mapping

from runnel.names import TableName


def result_key(digest: str, contents: Mapping[TableName, str]) -> str:
    """Return the key of what a task with this fingerprint makes of inputs with these contents.

    Which parameter gets which table is part of the fingerprint.

    >>> a, b = TableName("ods", "a"), TableName("ods", "b")
    >>> result_key("f", {a: "1", b: "2"}) == result_key("f", {b: "2", a: "1"})
    True
    >>> result_key("f", {a: "1", b: "2"}) == result_key("f", {a: "2", b: "1"})
    False
    """
    inputs = sorted((str(table), content) for table, content in contents.items())
    return hashlib.sha256(repr((digest, inputs)).encode()).hexdigest()
