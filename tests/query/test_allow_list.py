"""What passes the allow-list, and what an attacker tries."""

import pytest

from runnel.errors import Mistake
from runnel.query.allow_list import parse_allowed_query

PASSING = {
    "two tables in order": (
        "select * from b.y join a.x using (k) where z in (select z from a.w)",
        ("b.y", "a.x", "a.w"),
    ),
    "names of WITH are no tables": (
        "with c as (select * from a.x), d as (select * from c) select * from d, c",
        ("a.x",),
    ),
    "a WITH inside": ("select * from (with q as (select 1 as a) select a from q) r", ()),
    "a WITH does not see itself": ("with x as (select * from a.x) select * from x", ("a.x",)),
    "upper case": ("SELECT * FROM Ods.Orders", ("ods.orders",)),
    "backquotes": ("select `a b` from `ods`.`orders`", ("ods.orders",)),
    "words in strings and comments": ("select '; drop table x --' /* ; delete */ from a.x -- ; drop", ("a.x",)),
    "a comment in a comment": ("select /* a /* b */ c */ 1", ()),
    "last semicolons": ("select 1 ;;", ()),
    "brackets": ("(select 1) union all (select 2)", ()),
    "inline rows": ("values (1, 'a'), (2, 'b')", ()),
    "hints are dropped": ("select /*+ broadcast(x) */ * from a.x", ("a.x",)),
    "lateral view": ("select c from a.x lateral view explode(l) v as c", ("a.x",)),
    "pivot": ("select * from a.x pivot (sum(a) for b in (1, 2))", ("a.x",)),
    "a column called user": ("select user from a.x", ("a.x",)),
}


@pytest.mark.parametrize(("sql", "tables"), PASSING.values(), ids=PASSING)
def test_queries_pass(sql: str, tables: tuple[str, ...]) -> None:
    assert parse_allowed_query(sql).tables == tables


REFUSED = {
    "drop": ("drop table a.x", "SQL_NOT_READ_ONLY"),
    "insert": ("insert into a.x select 1", "SQL_NOT_READ_ONLY"),
    "insert after with": ("with c as (select 1) insert into a.x select * from c", "SQL_"),
    "insert overwrite a folder": ("insert overwrite directory '/tmp/x' select 1", "SQL_NOT_READ_ONLY"),
    "multi-insert": ("from a.x insert into a.y select *", "SQL_NOT_READ_ONLY"),
    "delete": ("delete from a.x", "SQL_NOT_READ_ONLY"),
    "update": ("update a.x set b = 1", "SQL_NOT_READ_ONLY"),
    "merge": ("merge into a.x using a.y on true when matched then delete", "SQL_NOT_READ_ONLY"),
    "create as select": ("create table a.y as select * from a.x", "SQL_NOT_READ_ONLY"),
    "create in brackets": ("(create table a.y as select 1)", "SQL_NOT_READ_ONLY"),
    "set": ("set spark.sql.ansi.enabled=false", "SQL_NOT_READ_ONLY"),
    "use": ("use main", "SQL_NOT_READ_ONLY"),
    "cache": ("cache table a.x", "SQL_NOT_READ_ONLY"),
    "describe": ("describe a.x", "SQL_NOT_READ_ONLY"),
    "show": ("show tables", "SQL_NOT_READ_ONLY"),
    "explain": ("explain select 1", "SQL_NOT_READ_ONLY"),
    "copy": ("copy a.x to '/tmp/x'", "SQL_NOT_READ_ONLY"),
    "attach": ("attach '/tmp/x.db' as y", "SQL_NOT_READ_ONLY"),
    "pragma": ("pragma database_list", "SQL_NOT_READ_ONLY"),
    "call": ("call spark_catalog.system.expire_snapshots('a.x')", "SQL_NOT_READ_ONLY"),
    "add jar": ("add jar '/tmp/x.jar'", "SQL_NOT_READ_ONLY"),
    "stacked": ("select 1; drop table a.x", "SQL_NOT_READ_ONLY"),
    "stacked selects": ("select 1; select 2", "SQL_NOT_READ_ONLY"),
    "stacked behind a comment": ("select 1 /* */ ; /* */ select 2", "SQL_NOT_READ_ONLY"),
    "transform": ("select transform(a) using 'sh' as (b) from a.x", "SQL_"),
    "map": ("select * from (map a using 'sh' from a.x)", "SQL_"),
    "pipe": ("select * from a.x |> select a", "SQL_SYNTAX"),
    "a comma before FROM": ("select a, from a.x", "SQL_SYNTAX"),
    "a comma before ORDER BY": ("select rank() over (partition by a, order by b) from a.x", "SQL_SYNTAX"),
    "a comma before a bracket": ("select array(a, ) from a.x", "SQL_SYNTAX"),
    "EXCEPT without brackets": ("select * except a from a.x", "SQL_SYNTAX"),
    "a path": ("select * from csv.`/etc/passwd`", "NAME_TABLE"),
    "a path with a scheme": ("select * from parquet.`s3://b/x`", "NAME_TABLE"),
    "a path as a string": ("select * from '/etc/passwd'", "NAME_TABLE"),
    "a path in double quotes": ('select * from "/etc/passwd"', "NAME_TABLE"),
    "read_csv": ("select * from read_csv('/etc/passwd')", "SQL_FUNCTION"),
    "read_files": ("select * from read_files('/etc')", "SQL_FUNCTION"),
    "a table function": ("select * from range(10)", "SQL_FUNCTION"),
    "a table function, joined": ("select * from a.x, glob('/*') g", "SQL_FUNCTION"),
    "a table function, lateral": ("select * from a.x, lateral explode(l) g", "SQL_FUNCTION"),
    "a table function in a view": ("select * from a.x lateral view read_text('/etc/passwd') v as c", "SQL_FUNCTION"),
    "identifier": ("select * from identifier('a.x')", "SQL_"),
    "table keyword": ("select * from table(range(3))", "SQL_"),
    "reflect": ("select reflect('java.lang.System', 'getenv')", "SQL_FUNCTION"),
    "java_method": ("select java_method('java.lang.System', 'exit', 1)", "SQL_FUNCTION"),
    "try_reflect": ("select TRY_REFLECT('a', 'b')", "SQL_FUNCTION"),
    "quoted function": ("select `reflect`('java.lang.System', 'getenv')", "SQL_FUNCTION"),
    "qualified function": ("select system.builtin.reflect('a', 'b')", "SQL_FUNCTION"),
    "qualified by backquotes": ("select `a`.`b`(1)", "SQL_FUNCTION"),
    "input_file_name": ("select input_file_name() from a.x", "SQL_FUNCTION"),
    "getenv": ("select getenv('HOME')", "SQL_FUNCTION"),
    "current_setting": ("select current_setting('secret_directory')", "SQL_FUNCTION"),
    "duckdb_secrets": ("select * from duckdb_secrets()", "SQL_FUNCTION"),
    "pragma function": ("select * from pragma_database_list()", "SQL_FUNCTION"),
    "read_text": ("select read_text('/etc/passwd')", "SQL_FUNCTION"),
    "read_blob in a filter": (
        "select 1 from a.x where (select content from read_blob('/etc/x')) is null",
        "SQL_FUNCTION",
    ),
    "getvariable": ("select getvariable('x')", "SQL_FUNCTION"),
    "current_user": ("select current_user", "SQL_FUNCTION"),
    "current_user()": ("select current_user()", "SQL_FUNCTION"),
    "version": ("select version()", "SQL_FUNCTION"),
    "sneaking through a window": ("select reflect('a', 'b') over ()", "SQL_FUNCTION"),
    "sneaking through a lambda": ("select transform(l, x -> reflect('a', x)) from a.x", "SQL_FUNCTION"),
    "sneaking through order by": ("select 1 order by reflect('a', 'b')", "SQL_FUNCTION"),
    "sneaking through limit": ("select 1 limit length(getenv('A'))", "SQL_FUNCTION"),
    "sneaking through a pivot": ("select * from a.x pivot (reflect('a') for b in (1))", "SQL_FUNCTION"),
    "sneaking through values": ("values (reflect('a', 'b'))", "SQL_FUNCTION"),
    "a setting in a name": ("select `${env:HOME}` from a.x", "SQL_SYNTAX"),
    "a setting outside a string": ("select ${env:HOME}", "SQL_SYNTAX"),
    "a variable": ("select @x", "SQL_SYNTAX"),
    "a named parameter": ("select :x", "SQL_"),
    "a parameter": ("select ?", "SQL_"),
    "a template": ("select {{ x }}", "SQL_SYNTAX"),
    "a hidden carriage return": ("select 1 --\r union select * from csv.`/etc/passwd`", "NAME_TABLE"),
    "NUL": ("select 1\0", "SQL_SYNTAX"),
    "look-alike quotes": ("select \u2018a\u2019", "SQL_SYNTAX"),
    "look-alike letters": ("select \u0430 from a.x", "SQL_SYNTAX"),
    "look-alike table": ("select * from a.`\u0445`", "NAME_TABLE"),
    "dots in a name": ("select * from a.`../x`", "NAME_TABLE"),
    "one part": ("select * from orders", "NAME_TABLE"),
    "three parts": ("select * from dev.ods.orders", "NAME_TABLE"),
    "metadata table": ("select * from ods.orders.snapshots", "NAME_TABLE"),
    "version as of": ("select * from a.x version as of 3", "SQL_NOT_READ_ONLY"),
    "timestamp as of": ("select * from a.x timestamp as of '2020-01-01'", "SQL_NOT_READ_ONLY"),
    "with recursive": ("with recursive c as (select 1) select * from c", "SQL_NOT_READ_ONLY"),
    "into": ("select 1 into a.x", "SQL_"),
    "nothing": ("", "SQL_SYNTAX"),
    "only a comment": ("-- hello", "SQL_SYNTAX"),
    "an open string": ("select 'abc", "SQL_SYNTAX"),
    "an open comment": ("select 1 /* abc", "SQL_SYNTAX"),
    "a bad bracket": ("select (1", "SQL_SYNTAX"),
    "a missing list": ("select from where", "SQL_"),
    "deep brackets": ("select " + "(" * 500 + "1" + ")" * 500, "SQL_SYNTAX"),
    "deep minus": ("select " + "- " * 9000 + "1", "SQL_SYNTAX"),
    "deep not": ("select " + "not " * 9000 + "true", "SQL_SYNTAX"),
    "deep case": ("select " + "case when true then " * 2000 + "1" + " end" * 2000, "SQL_SYNTAX"),
    "long": ("select " + "1," * 150_000 + "1", "SQL_SYNTAX"),
}


@pytest.mark.parametrize(("sql", "code"), REFUSED.values(), ids=REFUSED)
def test_the_rest_is_refused(sql: str, code: str) -> None:
    with pytest.raises(Mistake) as caught:
        parse_allowed_query(sql)
    assert caught.value.code.startswith(code)
    assert caught.value.exit_code == 2


def test_a_syntax_error_tells_the_place() -> None:
    with pytest.raises(Mistake) as caught:
        parse_allowed_query("select a,\n  b c d\nfrom x.y")
    assert (caught.value.at, "'d'" in caught.value.what) == ("line 2, column 7", True)


LENIENT = {
    "a comma too many": (
        "select a,\nfrom x.y",
        ("there is nothing between the comma and 'from'", "line 1, column 9", "remove the comma"),
    ),
    "EXCEPT without brackets": (
        "select * except a from x.y",
        ("the columns after EXCEPT must be in parentheses", "line 1, column 10", "write * EXCEPT (a, b)"),
    ),
}


@pytest.mark.parametrize(("sql", "expected"), LENIENT.values(), ids=LENIENT)
def test_what_only_a_lenient_parser_reads_is_refused_with_its_place(sql: str, expected: tuple[str, str, str]) -> None:
    with pytest.raises(Mistake) as caught:
        parse_allowed_query(sql)
    assert (caught.value.what, caught.value.at, caught.value.fix) == expected


def test_a_close_function_is_named() -> None:
    with pytest.raises(Mistake, match="close: `substring`"):
        parse_allowed_query("select substrin(a, 1) from x.y")


def test_three_parts_tell_about_at() -> None:
    with pytest.raises(Mistake, match="--at dev"):
        parse_allowed_query("select * from dev.ods.orders")


SPARK_TEXT = {
    "comments and hints go": ("select /*+ x(a) */ a -- b\n from c.d", "select a\nfrom c.d"),
    "strings in one form": ("select \"it's\", 'a''b' 'c', r'\\n'", "select 'it\\'s', 'a\\'bc', '\\\\n'"),
    "settings are taken apart": ("select '${env:HOME}'", "select '$\\u007benv:HOME}'"),
    "a line that a backslash would continue": ("select 1 -- \\\n + 2", "select 1\n+ 2"),
    "a hidden line": ("select 1 {# x #} + 2", "select 1 + 2"),
    "number suffixes stay": ("select 1L, 1.5BD", "select 1L, 1.5BD"),
}


@pytest.mark.parametrize(("sql", "expected"), SPARK_TEXT.values(), ids=SPARK_TEXT)
def test_spark_is_handed_the_checked_tokens(sql: str, expected: str) -> None:
    assert parse_allowed_query(sql).spark_sql == expected
