"""Fingerprints are the same in every process and folder, whatever the formatting, and always come to an end."""

import ast
import linecache
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.declare.model.flow import Task
from runnel.declare.model.source_location import SourceLocation
from runnel.names import TableName
from runnel.plan.fingerprint.difference import describe_difference
from runnel.plan.fingerprint.fingerprints import Fingerprinter, fingerprint_task
from tests.plan.fingerprint.disk_projects import HEAD, Shop

RICH = '''
import functools, re
from dataclasses import dataclass, field
from pathlib import Path
import logging

log = logging.getLogger(__name__)
ROOT = Path(__file__).parent
WORDS = {"b", "a", "c"}
MIXED = frozenset({1, "x", None, (2, "y")})
NESTED = {"k": [WORDS, {"z": 1.5}], 5: re.compile("a+")}

@dataclass(frozen=True)
class Config:
    """Settings."""
    rate: float = 0.5  # per day
    names: list = field(default_factory=list)

    @property
    def double(self):
        return self.rate * 2

CONFIG = Config(names=["x"])
pick = {"one": lambda x: x, "two": lambda x: x + 1}

def retry(times):
    def wrap(f):
        @functools.wraps(f)
        def run(*args, **kwargs):
            for _ in range(times):
                try:
                    return f(*args, **kwargs)
                except (ValueError, KeyError) as error:
                    log.warning("again: %s", error)
            return None
        return run
    return wrap

@retry(3)
def clean(x, *, least=1):
    """Clean."""
    if x and (n := len(x)) > least:
        x = [y for y in x if y not in WORDS]
    elif x is None:
        x = []
    else:
        x = sorted(x, key=lambda z: -z)
    match x:
        case [first, *rest] if rest:
            return first
        case {"k": value, **others}:
            return value, others
        case _:
            return pick["one"](x)

@rn.task("dws.a")
def a(orders):
    total = 0
    with open(ROOT / "x") as f, open("y"):
        total += sum(CONFIG.double for _ in f)
    async def inner():
        return await orders
    return clean(orders), f"{total!r:>{10}}", NESTED, MIXED, inner
'''


@pytest.fixture
def shop(tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    return Shop(folder)


def test_the_same_in_every_process_and_folder(shop, tmp_path):
    here = shop.of(RICH)
    assert here.opaque == ()
    shutil.copytree(shop.root, tmp_path / "two" / "deeper")
    script = (
        "import sys; from pathlib import Path; from tests.plan.fingerprint.disk_projects import Shop;"
        "found = Shop(Path(sys.argv[1])).fingerprint(); print(found.digest, found.to_json() == eval(sys.argv[2]))"
    )
    for seed, folder in (("1", shop.root), ("2", tmp_path / "two" / "deeper")):
        command = [sys.executable, "-c", script, str(folder), repr(here.to_json())]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [here.digest, "True"]


def test_a_relative_root_and_a_link_to_it(shop, tmp_path, monkeypatch):
    expected = shop.of(RICH).digest
    (tmp_path / "link").symlink_to(shop.root)
    (task,) = shop.tasks().values()
    assert Fingerprinter(tmp_path / "link").fingerprint_of(task).digest == expected
    assert Shop(tmp_path / "link").fingerprint().digest == expected
    monkeypatch.chdir(tmp_path)
    assert Fingerprinter(Path("one")).fingerprint_of(task).digest == expected


def test_the_order_of_asking_does_not_matter(shop):
    shop.write(RICH + '@rn.task("dws.b")\ndef b(orders):\n    return clean(orders), CONFIG\n')
    tasks = list(shop.tasks().values())
    forth, back = Fingerprinter(shop.root), Fingerprinter(shop.root)
    assert [forth.fingerprint_of(task).digest for task in tasks] == [
        back.fingerprint_of(task).digest for task in reversed(tasks)
    ][::-1]


TREE = ast.parse(HEAD + RICH)
SPELLINGS = [HEAD + RICH, ast.unparse(TREE), ast.unparse(TREE).replace("    ", "\t")]


@given(spelling=st.sampled_from(SPELLINGS), random=st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_formatting_and_comments_never_change_it(shop, spelling, random):
    lines = []
    for line in spelling.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        before = random.choice([[], [], [""], [f"{indent}# note"], ["  # é"]])
        lines += [*before, line + random.choice(["", "  ", "  # why"])]
    expected = shop.of(RICH).digest
    (shop.root / "flows" / "a.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert shop.fingerprint().digest == expected


CIRCLES = {
    "a function that calls itself": ("def f(x):\n    return f(x - {0})\n", "f(orders)"),
    "functions that call each other": ("def f(x):\n    return g(x - {0})\ndef g(x):\n    return f(x)\n", "f(orders)"),
    "a list in itself": ("x = [{0}]\nx.append(x)\n", "x"),
    "a dictionary in itself": ("x = dict(y={0})\nx['x'] = [x]\n", "x"),
    "an object that knows itself": ("class C: pass\nx = C()\nx.me, x.y = x, {0}\n", "x"),
    "a class that makes itself": ("class C:\n    def f(self):\n        return C(), {0}\n", "C()"),
    "a function in a list that it reads": ("def f(x):\n    return ALL, {0}\nALL = [f]\n", "ALL"),
    "a closure on itself": (
        "def make():\n    def f(x):\n        return f(x - {0})\n    return f\ng = make()\n",
        "g(orders)",
    ),
    "deep data": ("x = []\nfor _ in range(5000): x = [x, {0}]\n", "x"),
    "a long chain of calls": (
        "def f0(x):\n    return {0}\n" + "".join(f"def f{n}(x):\n    return f{n - 1}(x)\n" for n in range(1, 1500)),
        "f1499(orders)",
    ),
}


@pytest.mark.parametrize(("top", "expression"), CIRCLES.values(), ids=CIRCLES)
def test_circles_come_to_an_end(shop, top, expression):
    def made(number: int) -> str:
        return f'{top.replace("{0}", str(number))}@rn.task("dws.a")\ndef a(orders):\n    return {expression}\n'

    first = shop.of(made(1))
    assert shop.of(made(1)).digest == first.digest
    assert describe_difference(first.to_json(), shop.of(made(2)))


def task_of(function) -> Task:
    return Task(TableName("dws", "a"), "a", SourceLocation("x", 1), function=function)


def made_by(text: str, filename: str = "<string>", **names):
    names = {"__name__": "__main__", **names}
    exec(compile(text, filename, "exec"), names)
    return names["a"]


def test_functions_without_source_count_by_their_bytecode(tmp_path):
    def digest(text: str, **names) -> str:
        return fingerprint_task(task_of(made_by(text, **names)), tmp_path).digest

    first = digest("def a(x):\n    return x in {'a', 'b'}, RATE", RATE=1)
    assert first == digest("\n\n\ndef a(x):  # note\n    return (x in {'b', 'a'}, RATE)", RATE=1)
    assert first != digest("def a(x):\n    return x in {'a', 'c'}, RATE", RATE=1)
    assert first != digest("def a(x):\n    return x in {'a', 'b'}, RATE", RATE=2)


def test_cells_of_a_notebook_are_followed(tmp_path):
    def cell(number: int, text: str, **names):
        filename = f"<cell {number}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        return made_by(text, filename, **names)

    helper = cell(1, "def a(x):\n    return x\n")
    first = fingerprint_task(task_of(cell(2, "def a(x):\n    return helper(x)\n", helper=helper)), tmp_path)
    again = fingerprint_task(task_of(cell(3, "# again\ndef a(x):\n    return helper( x )\n", helper=helper)), tmp_path)
    assert first.digest == again.digest
    helper = cell(4, "\ndef a(x):\n    return -x\n")
    changed = fingerprint_task(task_of(cell(5, "def a(x):\n    return helper(x)\n", helper=helper)), tmp_path)
    assert describe_difference(first.to_json(), changed) == "its code changed at notebook:3"


def test_a_file_edited_after_loading_is_not_mistaken_for_what_runs(shop):
    text = '@rn.task("dws.a")\ndef a(orders):\n    return {}\n'
    shop.write(text.format(1))
    (task,) = shop.tasks().values()
    loaded = Fingerprinter(shop.root).fingerprint_of(task).digest
    shop.write(text.format(2))
    stale = Fingerprinter(shop.root).fingerprint_of(task).digest
    assert stale != shop.fingerprint().digest
    shop.write(text.format(3))
    assert Fingerprinter(shop.root).fingerprint_of(task).digest == stale  # what runs, whatever the file says
    shop.write(text.format(1))
    assert Fingerprinter(shop.root).fingerprint_of(task).digest == loaded


def test_an_import_within_a_function_counts_the_same_before_and_after_it_ran(shop):
    files = {
        "flows/a.py": '@rn.task("dws.a")\ndef a(orders):\n    import h\n    return h.f(orders)\n',
        "flows/h.py": "import g\ndef f(x):\n    return g.X\n",
        "flows/g.py": "X = 1\n",
    }
    first = shop.of(files)
    assert first.opaque == ("flows/h.py counts as a whole: imported within a function at flows/a.py:7",)
    (task,) = shop.tasks().values()
    task.function(1)
    assert Fingerprinter(shop.root).fingerprint_of(task).digest == first.digest
    changed = shop.of({**files, "flows/g.py": "X = 2\n"})
    assert describe_difference(first.to_json(), changed) == "its code changed at flows/g.py:1"


def test_installed_code_in_the_project_folder_counts_by_name(shop):
    top = f'import sys\nsys.path.insert(0, "{shop.root}/env")\nfrom outside_x import f\n'
    text = top + '@rn.task("dws.a")\ndef a(orders):\n    return f()\n'
    found = []
    for number in (1, 2):
        lib = shop.root / "env" / "outside_x.py"
        shop.write(text)
        lib.parent.mkdir(exist_ok=True)
        (lib.parent / "pyvenv.cfg").write_text("")
        lib.write_text(f"def f():\n    return {number}\n")
        sys.modules.pop("outside_x", None)
        before = list(sys.path)
        found.append(shop.fingerprint().digest)
        sys.path[:] = before
        sys.modules.pop("outside_x", None)
    assert found[0] == found[1]


def test_one_session_keeps_what_it_first_saw(shop):
    shop.write('CACHE = {}\n@rn.task("dws.a")\ndef a(orders):\n    CACHE[1] = 2\n    return CACHE\n')
    (task,) = shop.tasks().values()
    prints = Fingerprinter(shop.root)
    first = prints.fingerprint_of(task)
    task.function(1)
    assert prints.fingerprint_of(task) is first
    assert Fingerprinter(shop.root).fingerprint_of(task).digest != first.digest


def test_the_table_is_part_of_it(shop):
    shop.write('@rn.task("dws.a")\ndef a(orders):\n    return orders\n')
    (task,) = shop.tasks().values()
    assert (
        fingerprint_task(task, shop.root).digest
        != fingerprint_task(replace(task, table=TableName("dws", "b")), shop.root).digest
    )
