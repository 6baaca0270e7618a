"""Random expressions over the allow-list: both engines say the same."""

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runnel.query.allow_list import parse_allowed_query
from runnel.query.dialect.translate import DuckdbQuery, translate
from tests.query.conftest import SCHEMAS
from tests.query.test_corpus import QUICK, rows

pytestmark = pytest.mark.spark

# Values and operators are chosen such that nothing overflows or fails: one failure would cost the whole batch.
INTS = st.sampled_from(["i", "j", "n", "id", "1", "-2", "cast(null as int)"])
LONGS = st.sampled_from(["cast(i as bigint)", "7L", "length(u)", "size(arr)", "year(dt)"])
DECIMALS = st.sampled_from(["dec", "dec2", "1.5", "-0.25", "10"])
DOUBLES = st.sampled_from(["d", "e", "2.5D", "cast('NaN' as double)", "cast(n as double)"])
TEXTS = st.sampled_from(["s", "u", "csv", "'a'", "''", "cast(null as string)", "cast(i as string)"])
DAYS = st.sampled_from(["dt", "date '2024-02-29'", "cast(ts as date)", "cast(null as date)"])
COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


def _binary(operands: st.SearchStrategy[str], operators: list[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda a, o, b: f"({a} {o} {b})", operands, st.sampled_from(operators), operands)


def _choice(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return forms that choose among values of one kind."""
    forms = st.sampled_from(
        [
            "coalesce({a}, {b})", "nullif({a}, {b})", "greatest({a}, {b})", "least({a}, {b})", "if({t}, {a}, {b})",
            "case when {t} then {a} when {u} then {b} end", "nvl2({a}, {b}, {a})",
            "case {a} when {b} then {a} else {b} end",
        ]
    )  # fmt: skip
    return st.builds(lambda f, a, b, t, u: f.format(a=a, b=b, t=t, u=u), forms, values, values, TESTS, TESTS)


def _divided(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda a, b: f"({a} / {b})", values, st.sampled_from(["3", "-7", "2.5", "0.03", "n", "id"]))


TESTS = st.deferred(
    lambda: st.one_of(
        st.builds(lambda a, o, b: f"({a} {o} {b})", NUMBERS, COMPARED, NUMBERS),
        st.builds(lambda a, o, b: f"({a} {o} {b})", TEXTS, COMPARED, TEXTS),
        st.builds(lambda a, o, b: f"({a} {o} {b})", DAYS, COMPARED, DAYS),
        st.builds(lambda a: f"({a} is null)", NUMBERS),
        st.builds(lambda a, b, c: f"({a} in ({b}, {c}))", INTS, INTS, INTS),
        st.builds(lambda a, b, c: f"({a} not between {b} and {c})", INTS, INTS, INTS),
        st.builds(lambda a, o, b: f"({a} {o} {b})", TESTS, st.sampled_from(["and", "or"]), TESTS),
        st.builds(lambda a: f"(not {a})", TESTS),
        st.sampled_from(["b", "true", "s like 'a%'"]),
    )
)
NUMBERS = st.deferred(
    lambda: st.one_of(
        INTS, LONGS, DECIMALS, DOUBLES, _binary(INTS, ["+", "-", "*"]), _binary(DECIMALS, ["+", "-", "*"])
    )
)
EXPRESSIONS = st.one_of(
    TESTS,
    NUMBERS,
    _binary(st.one_of(INTS, LONGS), ["+", "-", "*"]),
    _binary(st.one_of(INTS, DECIMALS), ["+", "-", "*"]),
    _binary(st.one_of(DOUBLES, INTS), ["+", "-", "*"]),
    _divided(st.one_of(INTS, LONGS, DECIMALS, DOUBLES, _binary(DECIMALS, ["+", "*"]))),
    st.builds(lambda a, b: f"({a} % {b})", st.one_of(INTS, DECIMALS), st.sampled_from(["3", "-2", "n"])),
    st.builds(lambda a, b: f"pmod({a}, {b})", INTS, st.sampled_from(["3", "-2", "n"])),
    _choice(INTS),
    _choice(st.one_of(INTS, LONGS, DECIMALS)),
    _choice(st.one_of(INTS, DOUBLES)),
    _choice(TEXTS),
    _choice(DAYS),
    st.builds(lambda a, b: f"concat_ws('-', {a}, {b})", TEXTS, TEXTS),
    st.builds(lambda a, b: f"({a} || {b})", TEXTS, TEXTS),
    st.builds(lambda a, b: f"substring({a}, {b}, 2)", TEXTS, st.integers(-4, 4)),
    st.builds(lambda a, b: f"date_add({a}, {b})", DAYS, INTS),
    st.builds(lambda a, b: f"datediff({a}, {b})", DAYS, DAYS),
    st.builds(lambda a, b: f"round({a}, {b})", DECIMALS, st.integers(0, 3)),
)


@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(expressions=st.lists(EXPRESSIONS, min_size=80, max_size=80, unique=True))
def test_random_expressions_agree(spark, lab, expressions: list[str]) -> None:
    session = spark.newSession()
    for key, value in QUICK.items():
        session.conf.set(key, value)
    session.createDataFrame(pq.read_table(lab["facts"])).createOrReplaceGlobalTempView("facts")
    listed = [f"{expression} as x{number}" for number, expression in enumerate(expressions)]
    answers = {}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number, column in enumerate(listed):
            query = parse_allowed_query(f"select id, {column} from lab.facts order by id")
            found = translate(query, SCHEMAS, {"lab.facts": f"read_parquet('{lab['facts']}')"})
            if isinstance(found, DuckdbQuery):
                answers[number] = (found, connection.sql(found.sql).to_arrow_table())
    assert len(answers) > len(listed) / 2
    asked = ", ".join(listed[number] for number in answers)
    frame = session.sql(f"select id, {asked} from global_temp.facts order by id")
    theirs = frame.toArrow()
    for position, (number, (found, ours)) in enumerate(answers.items(), start=1):
        spark_type = frame.schema[position].dataType.simpleString()
        assert (listed[number], str(found.columns[1].type)) == (listed[number], spark_type)
        assert (listed[number], rows(ours, False, True)) == (
            listed[number],
            rows(theirs.select([0, position]), False, True),
        )
