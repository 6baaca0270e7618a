"""What can be wrong with the declaration of a sink is told before anything runs."""

import pytest

from runnel.errors import RunnelError
from tests.connect.sinks.sink_project import Shop

JDBC = 'rn.sink("ods.orders", rn.jdbc("sqlite:///o.db", {}))'
FILES = 'rn.sink("ods.orders", rn.files({}))'
MISTAKES = {
    "unknown table": (
        'rn.sink("ods.ordres", rn.files("a.csv"))',
        "but no source or task makes it; close: `ods.orders`",
    ),
    "no table's name": ('rn.sink("orders", rn.files("a.csv"))', "orders"),
    "no target": ('rn.sink("ods.orders", 5)', "can't go to '5'"),
    "upsert without key": (JDBC.format('table="o", mode="upsert"'), "key"),
    "a table of our own": (JDBC.format('table="Runnel_staged", mode="append"'), "does not begin with runnel_"),
    "no mode": (JDBC.format('table="o"'), "`mode` is missing"),
    "a glob": (FILES.format('"out/*.csv"'), "is a glob"),
    "no store of objects": (FILES.format('"hdfs://host/out.csv"'), "nor in an object store"),
    "a bucket": (FILES.format('"s3://bucket", format="csv"'), "is a bucket"),
    "partition of a file": (FILES.format('"out.parquet", partition="day"'), "a partitioned sink is a folder"),
    "packed Parquet": (FILES.format('"out/", format="parquet", compress="gz"'), "compressed already"),
    "two of one name": ("\n".join([FILES.format('"a.csv"')] * 2), "two sinks are called"),
    "unknown option": ('rn.sink("ods.orders", rn.files("a.csv"), retires=3)', "close: `retries`"),
    "strange name": ('rn.sink("ods.orders", rn.files("a.csv"), name="a b")', "'a b' is not a name"),
    "no branch": ('rn.sink("ods.orders", rn.files("a.csv"), branch="A B")', "not a branch name"),
    "two parameters": ('@rn.sink("ods.orders")\ndef send(a, b): ...', "is called with the new rows"),
    "a url of no hook": ('rn.sink("ods.orders", rn.webhook("ftp://x"))', "must start with http"),
    "a secret in the file": ('rn.sink("ods.orders", rn.webhook("http://x", secret="abc"))', "must not be in a file"),
    "a source with a layout": (
        'rn.source("ods.b", rn.files("b.parquet", partition="day"))',
        "partition=...) applies only to sinks",
    ),
}


@pytest.mark.parametrize(("line", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told(shop: Shop, line: str, told: str) -> None:
    shop.sinks(line)
    with pytest.raises(RunnelError) as caught:
        shop.plan()
    assert told in str(caught.value) and "flows/flow.py:" in str(caught.value)
    assert "abc" not in str(caught.value)


def test_a_name_stays_while_the_place_does(shop: Shop) -> None:
    names = []
    for password in ("A", "B"):
        secret = f'user="ada", password=rn.secret("{password}")'
        shop.sinks(JDBC.format(f'table="o", mode="append", {secret}').replace("sqlite:///o.db", "postgresql://h/d"))
        names.append(shop.states()[0]["sink"])
    assert names[0] == names[1] and names[0].startswith("ods.orders:jdbc-")
