"""Format values and names as Spark SQL, escaped so that none can break out of its literal. Pure."""

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from runnel.errors import Mistake
from runnel.names import quote_value

_LONG = 2**63


def format_literal(value: Any) -> str:
    r"""Format a value as a Spark SQL literal.

    >>> print(*map(format_literal, ("it's", 1.5, True, date(2026, 1, 2), Decimal("1.50"))))
    'it\'s' 1.5D true date '2026-01-02' 1.50BD
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -_LONG < value < _LONG else f"{value}BD"
    if isinstance(value, float):
        return f"{value!r}D" if math.isfinite(value) else f"double('{value}')"
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value:f}BD"
    if isinstance(value, datetime):
        return f"timestamp '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, str):
        # Spark replaces ${...} by settings before it parses the text.
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\u007b") + "'"
    what = f"{quote_value(value)} cannot be written in SQL"
    raise Mistake("DECLARE_CHECK", what, fix="use text, numbers, decimals, dates, times, true and false")


def quote_column(name: Any) -> str:
    """Return a column's name in backquotes; a dot leads into a struct, unless the user quoted the name.

    >>> print(quote_column("day"), quote_column("address.city"), quote_column("`a.b`"))
    `day` `address`.`city` `a.b`
    """
    if not isinstance(name, str) or not name.strip("` "):
        raise Mistake("DECLARE_CHECK", f"{quote_value(name)} is not a column", fix='name columns as text: "order_id"')
    text = name.strip()
    parts = [text[1:-1].replace("``", "`")] if text[0] == "`" == text[-1] else text.split(".")
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
