"""What changes a fingerprint, what doesn't, and how the change is told."""

import json
from dataclasses import replace

import pytest

from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files, Manual
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.names import TableName
from runnel.plan.fingerprint.declared_options import fingerprint_source
from runnel.plan.fingerprint.difference import describe_difference
from runnel.plan.fingerprint.fingerprints import Fingerprinter, fingerprint_task
from tests.plan.fingerprint.disk_projects import body

TASK = '@rn.task("dws.a")\ndef a(orders):\n'
PLAIN = TASK + "    return orders.where(1)\n"


def uses(expression: str, **files: str) -> dict[str, str]:
    """Return a project whose task in flows/a.py uses something of its other files."""
    names = {"top": "flows/a.py", **{name: f"flows/{name}.py" for name in files}}
    top = files.pop("top", "")
    return {"flows/a.py": body(f"return {expression}", before=top), **{names[name]: files[name] for name in files}}


CASES = {
    # nothing that counts
    "a comment": (PLAIN, PLAIN.replace("where(1)", "where(1)  # why"), None),
    "formatting": (PLAIN, TASK + "\n\n    return (\n      orders\n        .where( 1 )\n    )\n", None),
    "a docstring": (PLAIN, TASK + '    """Orders."""\n    return orders.where(1)\n', None),
    "another place in the file": (PLAIN, "X = 5\n\n\n" + PLAIN, None),
    "quotes and number spelling": (body('f("x", 1000)'), body("f('x', 1_000)"), None),
    "an annotation": (PLAIN, PLAIN.replace("(orders)", '(orders: "DataFrame") -> "DataFrame"'), None),
    "an annotated local": (body("x = 1", "return x"), body("x: int = 1", "return x"), None),
    "an annotation of a called helper": (
        uses("h.clean(orders)", top="import h\n", h="def clean(x):\n    return x\n"),
        uses("h.clean(orders)", top="import h\n", h="def clean(x: int) -> int:\n    return x\n"),
        None,
    ),
    "tags, owner, retries": (PLAIN, body("return orders.where(1)", options=', tags="x", owner="me", retries=5'), None),
    "a helper that is not reached": (
        body("return clean(orders)", before="def clean(x):\n    return x\ndef other():\n    return 1\n"),
        body("return clean(orders)", before="def clean(x):\n    return x\ndef other():\n    return 2\n"),
        None,
    ),
    "a constant that is not reached": (body("return 1", before="R = 1\n"), body("return 1", before="R = 2\n"), None),
    "a local of the name of a constant": (
        body("r = 1", "return [r for r in orders] + [(lambda r: r)(2)]", before="r = 1\n"),
        body("r = 1", "return [r for r in orders] + [(lambda r: r)(2)]", before="r = 2\n"),
        None,
    ),
    "a global of the name of a nested local": (
        body("def inner(r):", "    return r", "return inner(orders)", before="r = 1\n"),
        body("def inner(r):", "    return r", "return inner(orders)", before="r = 2\n"),
        None,
    ),
    "another task in the file": (PLAIN, PLAIN + '@rn.task("dws.b")\ndef b(orders):\n    return orders\n', None),
    "an edit of another helper in the helpers' file": (
        uses("h.clean(orders)", top="import h\n", h="def clean(x):\n    return x\n"),
        uses("h.clean(orders)", top="import h\n", h="Y = 3\ndef more():\n    return Y\ndef clean(x):\n    return x\n"),
        None,
    ),
    "a helper moved to another file": (
        uses("clean(orders)", top="from h import clean\n", h="def clean(x):\n    return x\n"),
        uses("clean(orders)", top="from g import clean\n", g="def clean(x):\n    return x\n"),
        None,
    ),
    # code
    "a statement": (
        body("x = 1", "y = 2", "return x"),
        body("x = 1", "y = 3", "return x"),
        "its code changed at flows/a.py:7",
    ),
    "a statement in a branch": (
        body("if orders:", "    x = 1", "else:", "    x = 2", "return x"),
        body("if orders:", "    x = 1", "else:", "    x = 3", "return x"),
        "its code changed at flows/a.py:9",
    ),
    "a statement that went": (
        body("x = 1", "y = 2", "return x"),
        body("x = 1", "return x"),
        "its code changed at flows/a.py:7",
    ),
    "the last statement went": (body("x = 1", "return 1"), body("x = 1"), "its code changed at flows/a.py:6"),
    "indentation that counts": (
        body("for x in orders:", "    y = x", "    z = y", "return 1"),
        body("for x in orders:", "    y = x", "z = y", "return 1"),
        "its code changed at flows/a.py:8",
    ),
    "a type of number": (body("return 1"), body("return 1.0"), "its code changed at flows/a.py:6"),
    "a helper": (
        body("return clean(orders)", before="def clean(x):\n    return x\n"),
        body("return clean(orders)", before="def clean(x):\n    return -x\n"),
        "its code changed at flows/a.py:5",
    ),
    "a helper of a helper in another file": (
        uses(
            "clean(orders)",
            top="from h import clean\n",
            h="import g\ndef clean(x):\n    return g.f(x)\n",
            g="\ndef f(x):\n    y = 1\n    return x\n",
        ),
        uses(
            "clean(orders)",
            top="from h import clean\n",
            h="import g\ndef clean(x):\n    return g.f(x)\n",
            g="\ndef f(x):\n    y = 1\n    return -x\n",
        ),
        "its code changed at flows/g.py:3",
    ),
    "an import that leads elsewhere": (
        uses("clean(orders)", top="from h import clean\n", h="def clean(x):\n    return x\n", g="\n"),
        uses("clean(orders)", top="from g import clean\n", g="\ndef clean(x):\n    return -x\n", h="\n"),
        "its code changed at flows/g.py:1",
    ),
    "a nested function": (
        body("def inner(r):", "    return r", "return inner(orders)"),
        body("def inner(r):", "    return -r", "return inner(orders)"),
        "its code changed at flows/a.py:7",
    ),
    "a lambda": (
        body("return f(orders)", before="f, g = lambda x: x, lambda x: x + 1\n"),
        body("return f(orders)", before="f, g = lambda x: -x, lambda x: x + 1\n"),
        "its code changed at flows/a.py:4",
    ),
    "the other lambda of a line": (
        body("return f(orders)", before="f, g = lambda x: x, lambda x: x + 1\n"),
        body("return f(orders)", before="f, g = lambda x: x, lambda x: x + 2\n"),
        None,
    ),
    "a decorator of a helper": (
        body(
            "return clean(orders)",
            before="import functools\ndef twice(f):\n    @functools.wraps(f)\n    def run(x):\n        return f(f(x))\n"
            "    return run\n@twice\ndef clean(x):\n    return x\n",
        ),
        body(
            "return clean(orders)",
            before="import functools\ndef twice(f):\n    @functools.wraps(f)\n    def run(x):\n        return f(x)\n"
            "    return run\n@twice\ndef clean(x):\n    return x\n",
        ),
        "its code changed at flows/a.py:8",
    ),
    "what a decorator wraps": (
        body("return f(1)", before="import functools\n@functools.lru_cache\ndef f(x):\n    return x\n"),
        body("return f(1)", before="import functools\n@functools.lru_cache\ndef f(x):\n    return -x\n"),
        "its code changed at flows/a.py:7",
    ),
    "what a package's decorator wraps": (
        body("return f(1)", before="import contextlib\n@contextlib.contextmanager\ndef f(x):\n    yield x\n"),
        body("return f(1)", before="import contextlib\n@contextlib.contextmanager\ndef f(x):\n    yield -x\n"),
        "its code changed at flows/a.py:7",
    ),
    "an annotation that a decorator may read": (
        body(
            "return f(1)",
            before="def keep(f): return f\n@keep\ndef f(x: int): return x\n",
        ).replace("f(1)", "map(f, orders)"),
        body(
            "return f(1)",
            before="def keep(f): return f\n@keep\ndef f(x: str): return x\n",
        ).replace("f(1)", "map(f, orders)"),
        "its code changed at flows/a.py:8",
    ),
    "a method": (
        body(
            "return C().f(orders)",
            before="class C:\n    def g(self):\n        return 1\n    def f(self, x):\n        return x\n",
        ),
        body(
            "return C().f(orders)",
            before="class C:\n    def g(self):\n        return 1\n    def f(self, x):\n        return -x\n",
        ),
        "its code changed at flows/a.py:8",
    ),
    "a base class in another file": (
        uses(
            "C().f(orders)",
            top="import h\nclass C(h.B):\n    pass\n",
            h="class B:\n    def f(self, x):\n        return x\n",
        ),
        uses(
            "C().f(orders)",
            top="import h\nclass C(h.B):\n    pass\n",
            h="class B:\n    def f(self, x):\n        return -x\n",
        ),
        "its code changed at flows/h.py:3",
    ),
    "a class without methods in another file": (
        uses("C.rate", top="from h import C\n", h="class C:\n    rate = 1\n"),
        uses("C.rate", top="from h import C\n", h="class C:\n    rate = 2\n"),
        "its code changed at flows/h.py:2",
    ),
    "functions in a container": (
        body("return ALL['f'](orders)", before="def f(x):\n    return x\nALL = {'f': f}\n"),
        body("return ALL['f'](orders)", before="def f(x):\n    return -x\nALL = {'f': f}\n"),
        "its code changed at flows/a.py:5",
    ),
    "a partial": (
        body(
            "return p(orders)",
            before="from functools import partial\ndef f(x, y):\n    return x\np = partial(f, y=1)\n",
        ),
        body(
            "return p(orders)",
            before="from functools import partial\ndef f(x, y):\n    return x\np = partial(f, y=2)\n",
        ),
        "the constant `p` that it uses changed at flows/a.py:7",
    ),
    "a bound method": (
        body("return m(orders)", before="class C:\n    def f(self, x):\n        return x\nm = C().f\n"),
        body("return m(orders)", before="class C:\n    def f(self, x):\n        return -x\nm = C().f\n"),
        "its code changed at flows/a.py:6",
    ),
    "an import within the function": (
        uses("__import", h="def f(x):\n    return x\n") | {"flows/a.py": body("import h", "return h.f(orders)")},
        uses("__import", h="def f(x):\n    return -x\n") | {"flows/a.py": body("import h", "return h.f(orders)")},
        "its code changed at flows/h.py:2",
    ),
    "a relative import within the function": (
        {
            "flows/p/h.py": "X = 1\n",
            "flows/a.py": "",
            "flows/p/b.py": "import runnel as rn\n" + body("from .h import X", "return X"),
        },
        {
            "flows/p/h.py": "X = 2\n",
            "flows/a.py": "",
            "flows/p/b.py": "import runnel as rn\n" + body("from .h import X", "return X"),
        },
        "its code changed at flows/p/h.py:1",
    ),
    "a task that is a lambda": (
        "rn.task('dws.a')(lambda orders: orders)\n",
        "rn.task('dws.a')(lambda orders: -orders)\n",
        "its code changed at flows/a.py:4",
    ),
    "a decorated task": (
        "import functools\ndef log(f):\n    @functools.wraps(f)\n    def run(orders):\n        return f(orders)\n"
        "    return run\n@rn.task('dws.a')\n@log\ndef a(orders):\n    return orders\n",
        "import functools\ndef log(f):\n    @functools.wraps(f)\n    def run(orders):\n        return f(orders)\n"
        "    return run\n@rn.task('dws.a')\n@log\ndef a(orders):\n    return -orders\n",
        "its code changed at flows/a.py:13",
    ),
    # values
    "a constant": (
        body("return RATE", before="RATE = 1\n"),
        body("return RATE", before="RATE = 2\n"),
        "the constant `RATE` that it uses changed at flows/a.py:4",
    ),
    "a constant of another file": (
        uses("RATE", top="from rates import RATE\n", rates="# rates\n\nRATE = 1\n"),
        uses("RATE", top="from rates import RATE\n", rates="# rates\n\nRATE = 2\n"),
        "the constant `RATE` that it uses changed at flows/rates.py:3",
    ),
    "a constant through a module": (
        uses("rates.RATE", top="import rates\n", rates="RATE = 1\n"),
        uses("rates.RATE", top="import rates\n", rates="RATE = 2\n"),
        "the constant `RATE` that it uses changed at flows/rates.py:1",
    ),
    "a constant through getattr": (
        uses("getattr(rates, 'RATE')", top="import rates\n", rates="RATE = 1\nOTHER = 1\n"),
        uses("getattr(rates, 'RATE')", top="import rates\n", rates="RATE = 2\nOTHER = 1\n"),
        "the constant `RATE` that it uses changed at flows/rates.py:1",
    ),
    "a constant of a helper": (
        uses("h.f(orders)", top="import h\n", h="LIMIT = 1\ndef f(x):\n    return x[:LIMIT]\n"),
        uses("h.f(orders)", top="import h\n", h="LIMIT = 2\ndef f(x):\n    return x[:LIMIT]\n"),
        "the constant `LIMIT` that it uses changed at flows/h.py:1",
    ),
    "a constant of a comprehension": (
        body("return [x for x in NAMES]", before="NAMES = ['a']\n"),
        body("return [x for x in NAMES]", before="NAMES = ['b']\n"),
        "the constant `NAMES` that it uses changed at flows/a.py:4",
    ),
    "a constant of a method": (
        body("return C().f()", before="RATE = 1\nclass C:\n    def f(self):\n        return RATE\n"),
        body("return C().f()", before="RATE = 2\nclass C:\n    def f(self):\n        return RATE\n"),
        "the constant `RATE` that it uses changed at flows/a.py:4",
    ),
    "a default of a helper": (
        body("return f()", before="def f(x=1):\n    return x\n"),
        body("return f()", before="def f(x=2):\n    return x\n"),
        "the default of `x` changed at flows/a.py:4",
    ),
    "an attribute of a function": (
        body("return f.rate", before="def f(): ...\nf.rate = 1\n"),
        body("return f.rate", before="def f(): ...\nf.rate = 2\n"),
        "the constant `f.rate` that it uses changed at flows/a.py:5",
    ),
    # declared
    "a parameter's default": (
        body("return min_amount", signature="orders, *, min_amount: float = 0.0"),
        body("return min_amount", signature="orders, *, min_amount: float = 5.0"),
        "its parameter `min_amount` is 5.0, was 0.0",
    ),
    "an option": (PLAIN, body("return orders.where(1)", options=', key="id"'), "its option `key` changed"),
    "an option that went": (body("return 1", options=', key="id"'), body("return 1"), "its option `key` changed"),
    "a check": (PLAIN, body("return orders.where(1)", options=', checks=["x > 0"]'), "its checks changed"),
    "what a check does": (
        body("return 1", options=', checks=[rn.check("x > 0")]'),
        body("return 1", options=', checks=[rn.check("x > 0", on_fail="drop")]'),
        "its checks changed",
    ),
    "one more input": (
        PLAIN,
        body("return orders.where(1)", signature="orders, sellers"),
        "its inputs changed: now also reads ods.sellers",
    ),
    "another input": (
        body("return x", signature="x", options=', inputs={"x": "ods.orders"}'),
        body("return x", signature="x", options=', inputs={"x": "ods.sellers"}'),
        "its inputs changed: now also reads ods.sellers, no longer reads ods.orders",
    ),
    "inputs exchanged": (
        body("return x", signature="x, y", options=', inputs={"x": "ods.orders", "y": "ods.sellers"}'),
        body("return x", signature="x, y", options=', inputs={"y": "ods.orders", "x": "ods.sellers"}'),
        "its inputs changed: `x` is ods.sellers, was ods.orders",
    ),
    # SQL
    "a comment in SQL": (
        {"flows/a.py": "", "flows/dws/a.sql": "select * from ods.orders"},
        {"flows/a.py": "", "flows/dws/a.sql": "-- all\nSELECT *\nFROM ods.orders"},
        None,
    ),
    "a condition in SQL": (
        {"flows/a.py": "", "flows/dws/a.sql": "select * from ods.orders"},
        {"flows/a.py": "", "flows/dws/a.sql": "select * from ods.orders where id > 1"},
        "its code changed at flows/dws/a.sql:1",
    ),
}


@pytest.mark.parametrize(("before", "after", "expected"), CASES.values(), ids=CASES)
def test_what_changes_a_fingerprint(shop, before, after, expected):
    first = shop.of(before)
    stored = json.loads(json.dumps(first.to_json()))
    second = shop.of(after)
    assert describe_difference(stored, second) == expected
    assert (first.digest == second.digest) == (expected is None)
    assert shop.of(before).digest == first.digest


OPAQUE = {
    "eval": ("return eval('Y')", "", "flows/a.py counts as a whole: eval at flows/a.py:7"),
    "exec": ("exec('x = Y')", "", "flows/a.py counts as a whole: exec at flows/a.py:7"),
    "globals": ("return globals()['Y']", "", "flows/a.py counts as a whole: globals() at flows/a.py:7"),
    "an import by name": ("return __import__('h')", "", "flows/a.py counts as a whole: __import__ at flows/a.py:7"),
    "importlib": (
        "return importlib.import_module('h')",
        "import importlib",
        "flows/a.py counts as a whole: importlib.import_module at flows/a.py:8",
    ),
    "an alias of eval": ("return e('Y')", "e = eval", "flows/a.py counts as a whole: eval at flows/a.py:8"),
    "a generator": (
        "return g",
        "g = (x for x in [1])",
        "flows/a.py counts as a whole: `g` is a builtins.generator at flows/a.py:5",
    ),
}


@pytest.mark.parametrize(("line", "top", "expected"), OPAQUE.values(), ids=OPAQUE)
def test_what_cannot_be_followed_counts_as_its_whole_file(shop, line, top, expected):
    before = f"Y = 1\n{top}\n" if top else "Y = 1\n"
    first = shop.of(body(line, before=before))
    assert first.opaque == (expected,)
    second = shop.of(body(line, before=before.replace("Y = 1", "Y = 2")))
    assert describe_difference(first.to_json(), second) == "its code changed at flows/a.py:4"
    assert shop.of(body(line, before=before.replace("Y = 1", "Y = 1  # one"))).digest == first.digest


def test_a_module_used_as_a_value_counts_as_a_whole(shop):
    first = shop.of(uses("getattr(h, orders)", top="import h\n", h="X = 1\n"))
    assert first.opaque == ("flows/h.py counts as a whole: `h` is used as a value at flows/a.py:7",)
    assert shop.of(uses("getattr(h, orders)", top="import h\n", h="X = 2\n")).digest != first.digest


def test_method_and_column_names_are_no_names(shop):
    """df.eval and a column called exec reach nothing."""
    assert shop.of(body("return orders.eval('x').exec.globals")).opaque == ()


def test_a_spark_expression_counts_with_the_functions_in_it(shop):
    made = (
        "from pyspark.sql import functions as F, types as T\ndef f(x):\n    return x{}\nlower = F.udf(f, T.{}Type())\n"
    )
    first = shop.of(body("return orders.select(lower('x'))", before=made.format("", "String")))
    assert first.opaque == ()
    other = shop.of(body("return orders.select(lower('x'))", before=made.format(" + 1", "String")))
    assert describe_difference(first.to_json(), other) == "its code changed at flows/a.py:6"
    other = shop.of(body("return orders.select(lower('x'))", before=made.format("", "Long")))
    assert other.digest != first.digest


TEMPLATE = """
def daily(name, factor):
    @rn.task(f"dws.{name}")
    def made(orders):
        return orders * factor

daily("a", 1)
daily("b", %s)
"""


def test_instances_of_a_template_differ_and_say_which_value_changed(shop):
    shop.write(TEMPLATE % 2)
    prints = Fingerprinter(shop.root)
    a, b = (prints.fingerprint_of(task) for task in shop.tasks().values())
    assert a.digest != b.digest
    changed = shop.of(TEMPLATE % 3, "dws.b")
    assert describe_difference(b.to_json(), changed) == "the value `factor` that it closes over changed at flows/a.py:6"
    assert shop.fingerprint("dws.a").digest == a.digest


def test_a_parameter_set_and_set_back(shop):
    text = body("return least", signature="orders, *, least: int = 1")
    first = shop.of(text)
    other = shop.fingerprint("dws.a", "least=5")
    assert describe_difference(first.to_json(), other) == "its parameter `least` is 5, was 1"
    assert shop.fingerprint("dws.a", "least=1").digest == first.digest
    assert shop.of(text.replace("= 1", "= 5")).digest == other.digest


def test_a_secret_value_is_not_kept(shop):
    shop.write(body("return word", signature="orders, *, word: str = 'x'"))
    (task,) = shop.tasks("word=hush").values()
    kept = Fingerprinter(shop.root, secrets=["hush"]).fingerprint_of(task)
    assert "hush" not in json.dumps(kept.to_json())
    assert describe_difference(fingerprint_task(task, shop.root).to_json() | {"digest": ""}, kept) is not None
    other = Fingerprinter(shop.root, secrets=["hush"]).fingerprint_of(replace(task, params=(("word", "x"),)))
    assert describe_difference(kept.to_json(), other) == "its parameter `word` changed"


ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"
SETTINGS = {
    "a time zone": ({ZONE: "Asia/Tokyo"}, f"the Spark setting `{ZONE}` is Asia/Tokyo"),
    "no errors of numbers": ({ANSI: "false"}, f"the Spark setting `{ANSI}` is false"),
    "what it is anyway": ({ZONE: "UTC", ANSI: "true"}, None),
    "legacy": (
        {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
        "the Spark setting `spark.sql.legacy.timeParserPolicy` is LEGACY",
    ),
    "a setting nobody knows": ({"spark.sql.surprise": "x"}, "the Spark setting `spark.sql.surprise` is x"),
    "how it is computed": ({"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "4g"}, None),
    "files and plans": ({"spark.sql.files.maxPartitionBytes": "1m", "spark.sql.adaptive.enabled": "false"}, None),
}


@pytest.mark.parametrize(("conf", "reason"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_that_decides_what_queries_answer(shop, conf, reason):
    first = shop.of(PLAIN)
    (task,) = shop.tasks().values()
    other = Fingerprinter(shop.root, conf=conf).fingerprint_of(task)
    assert describe_difference(first.to_json(), other) == reason
    assert (other.digest == first.digest) == (reason is None)
    if reason is not None:
        name = next(iter(conf))
        assert describe_difference(other.to_json(), first) == f"the Spark setting `{name}` is no longer there"
        again = Fingerprinter(shop.root, conf={name: "z"}).fingerprint_of(task)
        assert describe_difference(other.to_json(), again) == f"the Spark setting `{name}` is z, was {conf[name]}"


def test_another_form_of_fingerprints(shop):
    first = shop.of(PLAIN)
    assert (
        describe_difference({**first.to_json(), "form": 0, "digest": "x"}, first) == "another version of Runnel made it"
    )


def test_sources_are_known_by_how_their_files_are_read():
    def source(**changes) -> str:
        origin = replace(Files("data/*.csv", "csv", parse_columns("id long"), options=(("header", "true"),)), **changes)
        return fingerprint_source(Source(TableName("ods", "a"), origin, SourceLocation("a.py", 1)))

    assert source() == source(glob="other/*.csv") == source(removed="delete")
    assert source() == source(options=(("header", "true"), ("multiline", "false")))  # rows don't depend on it
    different = {source(), source(format="jsonl"), source(schema=parse_columns("id int")), source(options=())}
    different.add(fingerprint_source(Source(TableName("ods", "a"), Manual(), SourceLocation("a.py", 1))))
    assert len(different) == 5
