"""Nexmark: an auction house. Queries 0, 1, 2, 3, 5, 7 and 8 as streams, checked against the same in batch.

The events are our own, always the same, and follow the generator that people use: of 50 events one is a person, three
are auctions and 46 are bids, half of which are for the hot auction and three quarters of auctions by a hot seller. A
thousand events come per second of their time. A query reads only the kinds of events that it needs, and those count.
"""

import sys

from bench.figure import Figure
from bench.streamed import AT as TIME
from bench.streamed import IS_OPEN, Query, Table, measured

EVENTS = 500_000
FEW = 5_000
AT = TIME.format(ms="n")
PERSON = "n // 50"  # the newest
AUCTION = "n // 50 * 3 + least(n % 50, 3) - 1"
STATES = "['AZ', 'CA', 'ID', 'OR', 'WA', 'WY'][1 + (hash(n, 1) % 6)::int]"
SELLER = f"1000 + CASE WHEN hash(n, 2) % 4 > 0 THEN ({PERSON}) // 100 * 100 "
SELLER += f"ELSE greatest({PERSON} - (hash(n, 3) % 1000)::bigint, 0) END"
BOUGHT = f"1000 + CASE WHEN hash(n, 4) % 2 > 0 THEN ({AUCTION}) // 100 * 100 "
BOUGHT += f"ELSE greatest({AUCTION} - (hash(n, 5) % 100)::bigint, 0) END"
TABLES = [
    Table("persons", f"1000 + {PERSON} AS id, 'person ' || {PERSON} AS name, {STATES} AS state, {AT}", "n % 50 = 0"),
    Table(
        "auctions",
        f"1000 + {AUCTION} AS id, {SELLER} AS seller, 10 + (hash(n, 6) % 5)::int AS category, {AT}",
        "n % 50 BETWEEN 1 AND 3",
    ),
    Table(
        "bids",
        f"{BOUGHT} AS auction, 1000 + greatest({PERSON} - (hash(n, 7) % 1000)::bigint, 0) AS bidder, "
        f"round(100 * 10 ** (hash(n, 8) % 6000 / 1000.0))::bigint AS price, 'channel ' || hash(n, 9) % 4 AS channel, "
        f"{AT}",
        "n % 50 > 3",
    ),
]
LATE = "5 seconds"
QUERIES = [
    Query("q0", "query 0, as they are", ["bids"], f"""return bids.where("{IS_OPEN}")"""),
    Query(
        "q1",
        "query 1, euros",
        ["bids"],
        f"""
euros = "CAST(price * CAST(0.908 AS DECIMAL(4,3)) AS DECIMAL(20,3)) AS price"
return bids.where("{IS_OPEN}").selectExpr("auction", "bidder", euros, "channel", "at")
""",
    ),
    Query(
        "q2",
        "query 2, some auctions",
        ["bids"],
        f"""return bids.where("{IS_OPEN} AND auction % 123 = 0").select("auction", "price")""",
    ),
    Query(
        "q3",
        "query 3, sellers nearby",
        ["persons", "auctions"],
        f"""
people = persons.where("{IS_OPEN} AND state IN ('OR', 'ID', 'CA')").selectExpr("id AS seller", "name", "state")
offered = auctions.where("{IS_OPEN} AND category = 10").select("id", "seller")
return offered.join(people, "seller").select("name", "state", "id")
""",
    ),
    Query(
        "q5",
        "query 5, hot items",
        ["bids"],
        f"""
counts = bids.where("{IS_OPEN}").groupBy(F.window("at", "10 seconds", "2 seconds"), "auction").count()
all = counts.groupBy("window").agg(F.collect_list(F.struct("count", "auction")).alias("all"))
best = all.selectExpr("window.start AS start", "filter(all, one -> one.count = array_max(all).count) AS best")
return best.selectExpr("start", "explode(best) AS one").selectExpr("start", "one.auction", "one.count AS bids")
""",
        {"bids": LATE},
    ),
    Query(
        "q7",
        "query 7, highest bids",
        ["bids"],
        f"""
highest = F.max(F.struct("price", "auction", "bidder", "at")).alias("bid")
rows = bids.where("{IS_OPEN}").groupBy(F.window("at", "10 seconds")).agg(highest)
return rows.selectExpr("window.start AS start", "bid.*")
""",
        {"bids": LATE},
    ),
    Query(
        "q8",
        "query 8, new users",
        ["persons", "auctions"],
        f"""
people = persons.where("{IS_OPEN}").groupBy(F.window("at", "10 seconds"), "id", "name").agg(F.count("*"))
sellers = auctions.where("{IS_OPEN}").groupBy(F.window("at", "10 seconds"), "seller").agg(F.count("*"))
both = people.select("window", "id", "name").join(sellers.selectExpr("window", "seller AS id"), ["window", "id"])
return both.selectExpr("id", "name", "window.start AS start")
""",
        {"persons": LATE, "auctions": LATE},
    ),
]


def run(events: int = EVENTS, few: int = FEW) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    return measured("nexmark", TABLES, QUERIES, events, few)


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line())
