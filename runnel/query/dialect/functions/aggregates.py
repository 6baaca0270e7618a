"""Aggregates, over groups and over windows.

Sums of doubles are added in any order by both engines; their last bits are as free as within Spark itself.
"""

from sqlglot import exp

from runnel.query.data_types import BIGINT, BOOLEAN, DOUBLE, INT, DataType, array, decimal
from runnel.query.dialect.decimals import quotient
from runnel.query.dialect.functions.registry import AGGREGATES, WINDOWED, Call, literal_int, rule
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.operators import condition
from runnel.query.dialect.typed_expression import MOST_DIGITS, Refused, Value, cast, converted


def piece(call: Call, function: str, *arguments: str) -> str:
    """Return one DuckDB aggregate with the call's DISTINCT, FILTER and OVER."""
    distinct = "DISTINCT " if call.distinct else ""
    return f"{function}({distinct}{', '.join(arguments)}){call.where}{call.over}"


def _result(call: Call, sql: str, to: DataType, *arguments: Value | str) -> Value:
    found = call.result(sql, to, *arguments)
    if not call.distinct or found.name is None:
        return found
    return found.named(found.name.replace("(", "(DISTINCT ", 1))


@rule("count", table=AGGREGATES)
def _count(call: Call) -> Value:
    if len(call.nodes) == 1 and isinstance(call.nodes[0], exp.Star) and not call.distinct:
        check_arguments(call.nodes[0])
        if call.nodes[0].args.get("except_"):
            raise Refused("count of some columns")
        return _result(call, piece(call, "count", "*"), BIGINT, "1")
    values = call.values(1, 9)
    if len(values) == 1:
        if values[0].literal is not None and not call.distinct:
            return _result(call, piece(call, "count", "*"), BIGINT, values[0])
        return _result(call, piece(call, "count", values[0].sql), BIGINT, values[0])
    if not call.distinct or any(value.type.floating or not value.type.atomic for value in values):
        raise Refused("count of several columns")
    # DuckDB counts a row with NULLs in it, Spark does not.
    there = " AND ".join(f"{value.sql} IS NOT NULL" for value in values)
    where = f"{call.where[:-1]} AND {there})" if call.where else f" FILTER (WHERE {there})"
    row = f"ROW({', '.join(value.sql for value in values)})"
    return _result(call, f"count(DISTINCT {row}){where}{call.over}", BIGINT, *values)


@rule("count_if", table=AGGREGATES)
def _count_if(call: Call) -> Value:
    (value,) = call.values(1)
    if call.distinct:
        raise Refused("count_if of distinct values")
    return _result(call, cast(piece(call, "count_if", condition(value)), BIGINT), BIGINT, value)


@rule("sum", table=AGGREGATES)
def _total(call: Call) -> Value:
    (value,) = call.values(1)
    sql, to = _sum(call, value)
    return _result(call, sql, to, value)


def _sum(call: Call, value: Value) -> tuple[str, DataType]:
    have = value.type
    if have.integral:
        return cast(piece(call, "sum", value.sql), BIGINT), BIGINT
    if have.kind == "decimal":
        to = decimal(min(MOST_DIGITS, have.precision + 10), have.scale)
        return cast(piece(call, "sum", value.sql), to), to
    if have.floating:
        return piece(call, "sum", converted(value, DOUBLE)), DOUBLE
    raise Refused(f"a sum of {have}")


@rule("avg", "mean", table=AGGREGATES)
def _average(call: Call) -> Value:
    (value,) = call.values(1)
    have = value.type
    if have.kind != "decimal":
        if not have.numeric:
            raise Refused(f"an average of {have}")
        return _result(call, piece(call, "avg", converted(value, DOUBLE)), DOUBLE, value)
    if have.precision + 4 > MOST_DIGITS:
        raise Refused(f"an average of {have}")
    to = decimal(have.precision + 4, have.scale + 4)
    summed = decimal(MOST_DIGITS, have.scale)
    sql = quotient(piece(call, "sum", value.sql), summed, piece(call, "count", value.sql), decimal(19, 0), to)
    return _result(call, sql, to, value)


@rule("min", "max", table=AGGREGATES)
def _extreme(call: Call) -> Value:
    (value,) = call.values(1)
    if not value.type.atomic or value.is_null:
        raise Refused(f"{call.name} of {value.type}")
    return _result(call, piece(call, call.name, value.sql), value.type, value)


@rule("bool_and", "every", "bool_or", "some", "any", table=AGGREGATES)
def _truth(call: Call) -> Value:
    (value,) = call.values(1)
    function = "bool_and" if call.name in ("bool_and", "every") else "bool_or"
    return _result(call, piece(call, function, condition(value)), BOOLEAN, value)


@rule("bit_and", "bit_or", "bit_xor", table=AGGREGATES)
def _bits(call: Call) -> Value:
    (value,) = call.values(1)
    if not value.type.integral or call.distinct:
        raise Refused(f"{call.name} of {value.type}")
    return _result(call, piece(call, call.name, value.sql), value.type, value)


@rule("stddev", "std", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", table=AGGREGATES)
def _spread(call: Call) -> Value:
    (value,) = call.values(1)
    function = {"stddev": "stddev_samp", "std": "stddev_samp", "variance": "var_samp"}.get(call.name, call.name)
    return _result(call, piece(call, function, converted(value, DOUBLE)), DOUBLE, value)


def sorted_collection(call: Call, ascending: bool) -> Value:
    """Return `sort_array(collect_list(x))` or of `collect_set`: only sorted is their order the same in both."""
    (value,) = call.values(1)
    if not value.type.atomic or value.type.floating or call.over:
        raise Refused(f"{call.name} of {value.type}")
    distinct = "DISTINCT " if call.distinct or call.name == "collect_set" else ""
    there = f"{value.sql} IS NOT NULL"
    where = f"{call.where[:-1]} AND {there})" if call.where else f" FILTER (WHERE {there})"
    order = "'ASC', 'NULLS FIRST'" if ascending else "'DESC', 'NULLS LAST'"
    to = array(value.type)
    sql = f"coalesce(list_sort(list({distinct}{value.sql}){where}, {order}), CAST([] AS {to.duckdb}))"
    shown = "DISTINCT " if call.distinct else ""
    own = None if value.name is None else f"sort_array({call.name}({shown}{value.name}), {str(ascending).lower()})"
    return Value(sql, to, own)


@rule("grouping", table=AGGREGATES)
def _grouping(call: Call) -> Value:
    (value,) = call.values(1)
    if not call.scope.grouping_sets:
        raise Refused("grouping without grouping sets")
    return Value(f"CAST(grouping({value.sql}) AS TINYINT)", DataType("tinyint"), call.result("", INT, value).name)


@rule("row_number", "rank", "dense_rank", table=WINDOWED)
def _rank(call: Call) -> Value:
    call.values(0)
    name = {"rank": "RANK", "dense_rank": "DENSE_RANK"}.get(call.name, call.name)
    return call.result(cast(f"{call.name}(){call.over}", INT), INT, name=name)


@rule("percent_rank", "cume_dist", table=WINDOWED)
def _share(call: Call) -> Value:
    call.values(0)
    name = {"percent_rank": "PERCENT_RANK"}.get(call.name, call.name)
    return call.result(f"{call.name}(){call.over}", DOUBLE, name=name)


@rule("ntile", table=WINDOWED)
def _ntile(call: Call) -> Value:
    (many,) = call.values(1)
    if literal_int(many, "a count") < 1:
        raise Refused("such a count")
    return call.result(cast(f"ntile({many.literal}){call.over}", INT), INT, many)


@rule("lag", "lead", table=WINDOWED)
def _shifted(call: Call) -> Value:
    values = call.values(1, 3)
    offset = literal_int(values[1], "an offset") if len(values) > 1 else 1
    arguments = [values[0].sql, str(offset)]
    default: Value | str = "NULL"
    if len(values) == 3:
        default = values[2]
        arguments.append(converted(values[2], values[0].type))
    return call.result(
        f"{call.name}({', '.join(arguments)}){call.over}", values[0].type, values[0], str(offset), default
    )


@rule("first_value", "last_value", table=WINDOWED)
def _edge(call: Call) -> Value:
    (value,) = call.values(1)
    if not call.ordered:
        raise Refused(f"{call.name} without an order")
    return call.result(f"{call.name}({value.sql}){call.over}", value.type, value)
