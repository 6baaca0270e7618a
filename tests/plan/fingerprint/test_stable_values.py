"""A constant that a task uses counts by its value, whatever kind it is of."""

import pytest

from runnel.plan.fingerprint.difference import describe_difference
from tests.plan.fingerprint.disk_projects import body

VALUES = {
    "text": ("'a'", "'b'"),
    "number and text": ("1", "'1'"),
    "number and truth": ("1", "True"),
    "int and float": ("1", "1.0"),
    "none": ("None", "0"),
    "bytes": ("b'a'", "b'b'"),
    "list": ("[1, [2]]", "[1, [3]]"),
    "list and tuple": ("[1]", "(1,)"),
    "dict": ("{'a': {'b': 1}}", "{'a': {'b': 2}}"),
    "order of a dict": ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}"),
    "set": ("{1, 2}", "{1, 3}"),
    "frozenset": ("frozenset('ab')", "frozenset('ac')"),
    "range": ("range(3)", "range(4)"),
    "decimal": ("Decimal('1.0')", "Decimal('1.00')"),
    "date": ("date(2026, 1, 1)", "date(2026, 1, 2)"),
    "datetime": ("datetime(2026, 1, 1, tzinfo=ZoneInfo('UTC'))", "datetime(2026, 1, 1, tzinfo=ZoneInfo('Asia/Tokyo'))"),
    "timedelta": ("timedelta(days=1)", "timedelta(days=2)"),
    "pattern": ("re.compile('a')", "re.compile('a', re.I)"),
    "path": ("Path('a')", "Path('b')"),
    "uuid": ("UUID(int=1)", "UUID(int=2)"),
    "fraction": ("Fraction(1, 2)", "Fraction(1, 3)"),
    "enum": ("Color.RED", "Color.BLUE"),
    "dataclass": ("Config(1)", "Config(2)"),
    "named tuple": ("Pair(1, 2)", "Pair(1, 3)"),
    "plain object": ("Plain(1)", "Plain(2)"),
    "object with slots": ("Slotted(1)", "Slotted(2)"),
    "namespace": ("SimpleNamespace(a=1)", "SimpleNamespace(a=2)"),
    "deque": ("deque([1])", "deque([2])"),
    "default dict": ("defaultdict(int, a=1)", "defaultdict(list, a=1)"),
    "numpy scalar": ("np.int64(1)", "np.int64(2)"),
    "numpy type": ("np.int64(1)", "np.int32(1)"),
    "numpy array": ("np.arange(3)", "np.arange(1, 4)"),
    "pandas frame": ("pd.DataFrame({'a': [1]})", "pd.DataFrame({'a': [2]})"),
    "pandas series": ("pd.Series(['a'])", "pd.Series(['b'])"),
    "spark type": (
        "T.StructType([T.StructField('a', T.LongType())])",
        "T.StructType([T.StructField('b', T.LongType())])",
    ),
    "function of a package": ("math.floor", "math.ceil"),
    "item getter": ("itemgetter('a')", "itemgetter('b')"),
    "bound method of a list": ("[1].count", "[2].count"),
    "text made of the project's folder and more": ("__file__ + 'x'", "__file__ + 'y'"),
}
KINDS = """
import enum, math, re
from collections import defaultdict, deque, namedtuple
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID
from zoneinfo import ZoneInfo

class Color(enum.Enum):
    RED = 1
    BLUE = 2

@dataclass
class Config:
    rate: int

Pair = namedtuple("Pair", "a b")

class Plain:
    def __init__(self, x):
        self.x = x

class Slotted:
    __slots__ = ("x",)
    def __init__(self, x):
        self.x = x
"""
HEAVY = {"np": "import numpy as np\n", "pd": "import pandas as pd\n", "T": "import pyspark.sql.types as T\n"}


@pytest.mark.parametrize(("one", "other"), VALUES.values(), ids=VALUES)
def test_values_of_constants(shop, one, other):
    heavy = HEAVY.get(one.partition(".")[0], "")
    found = [shop.of(body("return X", before=f"{KINDS}{heavy}X = {text}\n")) for text in (one, other, one)]
    assert found[0].digest == found[2].digest != found[1].digest
    assert found[0].opaque == ()
    assert str(describe_difference(found[0].to_json(), found[1])).startswith(
        "the constant `X` that it uses changed at flows/a.py:"
    )
