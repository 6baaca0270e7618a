"""Parse and validate names of tables, branches, tags and commits, all by one rule."""

import re
import secrets
from dataclasses import dataclass
from datetime import datetime

from runnel.errors import Mistake

RESERVED_BRANCHES = ("spark_catalog", "system")
SLOT_PREFIX = "run_"
_PART = re.compile(r"[a-z][a-z0-9_]{0,62}\Z", re.ASCII)
_BRANCH = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z", re.ASCII)
_TAG = re.compile(r"(?=.{1,63}\Z)[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*\Z", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{4,20}\Z", re.ASCII)
COMMIT_LENGTH = 20
RULE = "lower-case ASCII letters, digits and _, starting with a letter, at most 63 characters"


@dataclass(frozen=True, order=True)
class TableName:
    """The name of a table: a layer and a name, written `layer.name`."""

    layer: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """Parse a table name that a user typed; raise a mistake if it breaks the rule.

        >>> TableName.parse("ods.orders")
        TableName(layer='ods', name='orders')
        """
        parts = text.split(".") if isinstance(text, str) else []
        if len(parts) != 2 or not all(_PART.match(part) for part in parts):
            raise Mistake(
                "NAME_TABLE",
                f"{quote_value(text)} is not a table name",
                fix=f"write it as layer.name, such as ods.orders; each part has {RULE}",
            )
        return cls(*parts)

    @classmethod
    def parse_unchecked(cls, text: str) -> "TableName":
        """Parse a name stored in the catalog; another engine may have chosen it, so it may break the rule."""
        layer, _, name = text.rpartition(".")
        return cls(layer, name)

    def __str__(self) -> str:
        """Return `layer.name`."""
        return f"{self.layer}.{self.name}"


def quote_value(text: object, max_length: int = 60) -> str:
    """Return what a user typed, quoted, on one line and not too long; characters that can't be printed are escaped.

    >>> quote_value("a" * 80), quote_value("Köln")
    ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'", "'Köln'")
    """
    full_text = str(text)
    return repr(full_text) if len(full_text) <= max_length else repr(full_text[:max_length])[:-1] + "…'"


def validate_branch_name(text: str) -> str:
    """Return `text` if it is a valid branch name; raise a mistake otherwise."""
    if not _BRANCH.match(text):
        fix = "use lower-case ASCII letters, digits, _ and -, starting with a letter, at most 63 characters"
        raise Mistake("NAME_BRANCH", f"{quote_value(text)} is not a branch name", fix=fix)
    if text in RESERVED_BRANCHES or text.startswith(SLOT_PREFIX):
        fix = "choose another name: spark_catalog, system and run_* belong to Spark and Runnel"
        raise Mistake("NAME_RESERVED", f"the branch name `{text}` is reserved", fix=fix)
    return text


def validate_tag_name(text: str) -> str:
    """Return `text` if it is a valid tag name; raise a mistake otherwise."""
    if not _TAG.match(text):
        fix = "use lower-case ASCII letters, digits, _, - and ., starting with a letter, at most 63 characters"
        raise Mistake("NAME_TAG", f"{quote_value(text)} is not a tag name", fix=fix)
    return text


def looks_like_commit(text: str) -> bool:
    """Tell whether `text` may be a commit id or a prefix of one."""
    return bool(_COMMIT.match(text))


def new_commit_id() -> str:
    """Return a new commit id, chosen before the transaction that stores it."""
    return secrets.token_hex(COMMIT_LENGTH // 2)


def new_run_id(at: datetime) -> str:
    """Return a new run id; run ids sort by time."""
    return f"{at:%Y%m%dt%H%M%S}-{secrets.token_hex(4)}"
