"""Rules for aggregate functions, over groups and over windows.

Both engines add doubles in any order, so the last bits of a sum may differ, as they may between two runs of Spark.
"""

from sqlglot import exp

from runnel.declare.model.column_types import MAX_DIGITS, SparkType, array_type, decimal
from runnel.query.data_types import BIGINT, BOOLEAN, DOUBLE, INT, format_duckdb_type
from runnel.query.dialect.decimals import divide_exactly
from runnel.query.dialect.functions.registry import (
    AGGREGATE_FUNCTIONS,
    WINDOW_FUNCTIONS,
    FunctionCall,
    require_int_literal,
    rule,
)
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.operators import require_condition
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, cast, cast_implicitly


def aggregate_sql(call: FunctionCall, function: str, *arguments: str) -> str:
    """Return one DuckDB aggregate with the call's DISTINCT, FILTER and OVER."""
    distinct = "DISTINCT " if call.distinct else ""
    return f"{function}({distinct}{', '.join(arguments)}){call.where}{call.over}"


def _name_result(call: FunctionCall, sql: str, to: SparkType, *arguments: TypedExpression | str) -> TypedExpression:
    result = call.result(sql, to, *arguments)
    if not call.distinct or result.name is None:
        return result
    return result.with_name(result.name.replace("(", "(DISTINCT ", 1))


@rule("count", table=AGGREGATE_FUNCTIONS)
def _count(call: FunctionCall) -> TypedExpression:
    if len(call.argument_nodes) == 1 and isinstance(call.argument_nodes[0], exp.Star) and not call.distinct:
        check_arguments(call.argument_nodes[0])
        if call.argument_nodes[0].args.get("except_"):
            raise Untranslatable("count of some columns")
        return _name_result(call, aggregate_sql(call, "count", "*"), BIGINT, "1")
    values = call.translate_arguments(1, 9)
    if len(values) == 1:
        if values[0].literal is not None and not call.distinct:
            return _name_result(call, aggregate_sql(call, "count", "*"), BIGINT, values[0])
        return _name_result(call, aggregate_sql(call, "count", values[0].sql), BIGINT, values[0])
    if not call.distinct or any(value.type.is_floating or not value.type.is_atomic for value in values):
        raise Untranslatable("count of several columns")
    # DuckDB counts a row with NULLs in it, Spark does not.
    not_null = " AND ".join(f"{value.sql} IS NOT NULL" for value in values)
    filter_clause = f"{call.where[:-1]} AND {not_null})" if call.where else f" FILTER (WHERE {not_null})"
    row = f"ROW({', '.join(value.sql for value in values)})"
    return _name_result(call, f"count(DISTINCT {row}){filter_clause}{call.over}", BIGINT, *values)


@rule("count_if", table=AGGREGATE_FUNCTIONS)
def _count_if(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    if call.distinct:
        raise Untranslatable("count_if of distinct values")
    return _name_result(call, cast(aggregate_sql(call, "count_if", require_condition(value)), BIGINT), BIGINT, value)


@rule("sum", table=AGGREGATE_FUNCTIONS)
def _sum_rule(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    sql, to = _sum_sql(call, value)
    return _name_result(call, sql, to, value)


def _sum_sql(call: FunctionCall, value: TypedExpression) -> tuple[str, SparkType]:
    source_type = value.type
    if source_type.is_integral:
        return cast(aggregate_sql(call, "sum", value.sql), BIGINT), BIGINT
    if source_type.kind == "decimal":
        to = decimal(min(MAX_DIGITS, source_type.precision + 10), source_type.scale)
        return cast(aggregate_sql(call, "sum", value.sql), to), to
    if source_type.is_floating:
        return aggregate_sql(call, "sum", cast_implicitly(value, DOUBLE)), DOUBLE
    raise Untranslatable(f"a sum of {source_type}")


@rule("avg", "mean", table=AGGREGATE_FUNCTIONS)
def _average(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    source_type = value.type
    if source_type.kind != "decimal":
        if not source_type.is_numeric:
            raise Untranslatable(f"an average of {source_type}")
        return _name_result(call, aggregate_sql(call, "avg", cast_implicitly(value, DOUBLE)), DOUBLE, value)
    if source_type.precision + 4 > MAX_DIGITS:
        raise Untranslatable(f"an average of {source_type}")
    to = decimal(source_type.precision + 4, source_type.scale + 4)
    sum_type = decimal(MAX_DIGITS, source_type.scale)
    sql = divide_exactly(
        aggregate_sql(call, "sum", value.sql), sum_type, aggregate_sql(call, "count", value.sql), decimal(19, 0), to
    )
    return _name_result(call, sql, to, value)


@rule("min", "max", table=AGGREGATE_FUNCTIONS)
def _min_max(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    if not value.type.is_atomic or value.is_null:
        raise Untranslatable(f"{call.name} of {value.type}")
    return _name_result(call, aggregate_sql(call, call.name, value.sql), value.type, value)


@rule("bool_and", "every", "bool_or", "some", "any", table=AGGREGATE_FUNCTIONS)
def _bool_and_or(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    function = "bool_and" if call.name in ("bool_and", "every") else "bool_or"
    return _name_result(call, aggregate_sql(call, function, require_condition(value)), BOOLEAN, value)


@rule("bit_and", "bit_or", "bit_xor", table=AGGREGATE_FUNCTIONS)
def _bit_aggregate(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    if not value.type.is_integral or call.distinct:
        raise Untranslatable(f"{call.name} of {value.type}")
    return _name_result(call, aggregate_sql(call, call.name, value.sql), value.type, value)


@rule("stddev", "std", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", table=AGGREGATE_FUNCTIONS)
def _stddev_variance(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    function = {"stddev": "stddev_samp", "std": "stddev_samp", "variance": "var_samp"}.get(call.name, call.name)
    return _name_result(call, aggregate_sql(call, function, cast_implicitly(value, DOUBLE)), DOUBLE, value)


def translate_sorted_collection(call: FunctionCall, ascending: bool) -> TypedExpression:
    """Translate `sort_array(collect_list(x))` or `collect_set`: only sorted, both engines give the same order."""
    (value,) = call.translate_arguments(1)
    if not value.type.is_atomic or value.type.is_floating or call.over:
        raise Untranslatable(f"{call.name} of {value.type}")
    distinct = "DISTINCT " if call.distinct or call.name == "collect_set" else ""
    not_null = f"{value.sql} IS NOT NULL"
    filter_clause = f"{call.where[:-1]} AND {not_null})" if call.where else f" FILTER (WHERE {not_null})"
    order = "'ASC', 'NULLS FIRST'" if ascending else "'DESC', 'NULLS LAST'"
    to = array_type(value.type)
    sorted_sql = f"list_sort(list({distinct}{value.sql}){filter_clause}, {order})"
    sql = f"coalesce({sorted_sql}, CAST([] AS {format_duckdb_type(to)}))"
    distinct_name = "DISTINCT " if call.distinct else ""
    spark_name = (
        None
        if value.name is None
        else f"sort_array({call.name}({distinct_name}{value.name}), {str(ascending).lower()})"
    )
    return TypedExpression(sql, to, spark_name)


@rule("grouping", table=AGGREGATE_FUNCTIONS)
def _grouping(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    if not call.scope.grouping_sets:
        raise Untranslatable("grouping without grouping sets")
    return TypedExpression(
        f"CAST(grouping({value.sql}) AS TINYINT)", SparkType("tinyint"), call.result("", INT, value).name
    )


@rule("row_number", "rank", "dense_rank", table=WINDOW_FUNCTIONS)
def _rank(call: FunctionCall) -> TypedExpression:
    call.translate_arguments(0)
    name = {"rank": "RANK", "dense_rank": "DENSE_RANK"}.get(call.name, call.name)
    return call.result(cast(f"{call.name}(){call.over}", INT), INT, name=name)


@rule("percent_rank", "cume_dist", table=WINDOW_FUNCTIONS)
def _percent_rank_cume_dist(call: FunctionCall) -> TypedExpression:
    call.translate_arguments(0)
    name = {"percent_rank": "PERCENT_RANK"}.get(call.name, call.name)
    return call.result(f"{call.name}(){call.over}", DOUBLE, name=name)


@rule("ntile", table=WINDOW_FUNCTIONS)
def _ntile(call: FunctionCall) -> TypedExpression:
    (bucket_count,) = call.translate_arguments(1)
    if require_int_literal(bucket_count, "a count") < 1:
        raise Untranslatable("ntile with fewer than one bucket")
    return call.result(cast(f"ntile({bucket_count.literal}){call.over}", INT), INT, bucket_count)


@rule("lag", "lead", table=WINDOW_FUNCTIONS)
def _lag_lead(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(1, 3)
    offset = require_int_literal(values[1], "an offset") if len(values) > 1 else 1
    arguments = [values[0].sql, str(offset)]
    default: TypedExpression | str = "NULL"
    if len(values) == 3:
        default = values[2]
        arguments.append(cast_implicitly(values[2], values[0].type))
    return call.result(
        f"{call.name}({', '.join(arguments)}){call.over}", values[0].type, values[0], str(offset), default
    )


@rule("first_value", "last_value", table=WINDOW_FUNCTIONS)
def _first_last_value(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    if not call.ordered:
        raise Untranslatable(f"{call.name} without an order")
    return call.result(f"{call.name}({value.sql}){call.over}", value.type, value)
