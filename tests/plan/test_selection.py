"""What a selection means, and what is said about one that means nothing."""

import pytest

from runnel.errors import Mistake
from runnel.plan.graph import Graph
from runnel.plan.selection import select_tables
from tests.plan.factories import files, flow, name, task

SHOP = flow(
    files("ods.orders", tags=("daily",)),
    files("ods.sellers"),
    task("dwd.orders", "ods.orders", file="flows/dwd/orders.sql"),
    task("dws.seller_day", "dwd.orders", "ods.sellers", file="flows/dws/seller_day.sql", tags=("daily", "core")),
    task("dws.seller_month", "dws.seller_day", file="flows/dws/seller_month.sql", tags=("monthly",)),
    task("ads.top", "dws.seller_month", file="flows/dws_old.py"),
)
ALL = {str(made.table) for made in SHOP}
MONTH_UP = {"dws.seller_month", "dws.seller_day", "dwd.orders", "ods.orders", "ods.sellers"}

CHOSEN = {
    "nothing said": ([], ALL),
    "a name": (["dws.seller_day"], {"dws.seller_day"}),
    "a name without its layer": (["seller_day"], {"dws.seller_day"}),
    "a source": (["ods.orders"], {"ods.orders"}),
    "a glob": (["dws.*"], {"dws.seller_day", "dws.seller_month"}),
    "a glob over layers": (["*.orders"], {"ods.orders", "dwd.orders"}),
    "everything": (["*"], ALL),
    "with what it needs": (["+dws.seller_month"], MONTH_UP),
    "with what needs it": (["dws.seller_day+"], {"dws.seller_day", "dws.seller_month", "ads.top"}),
    "one step up": (["1+dws.seller_day"], {"dws.seller_day", "dwd.orders", "ods.sellers"}),
    "two steps up": (["2+dws.seller_month"], MONTH_UP - {"ods.orders"}),
    "one step down": (["dws.seller_day+1"], {"dws.seller_day", "dws.seller_month"}),
    "both ways": (["+dws.seller_month+"], MONTH_UP | {"ads.top"}),
    "both ways with depths": (["1+dws.seller_month+1"], {"dws.seller_day", "dws.seller_month", "ads.top"}),
    "a tag": (["tag:daily"], {"ods.orders", "dws.seller_day"}),
    "a tag and below": (["tag:monthly+"], {"dws.seller_month", "ads.top"}),
    "a glob of tags": (["tag:*ly"], {"ods.orders", "dws.seller_day", "dws.seller_month"}),
    "a folder": (["path:flows/dws"], {"dws.seller_day", "dws.seller_month"}),
    "a folder as a shell completes it": (["path:./flows/dws/"], {"dws.seller_day", "dws.seller_month"}),
    "a file": (["path:flows/dws/seller_day.sql"], {"dws.seller_day"}),
    "a glob of files": (["path:flows/*/seller_*.sql"], {"dws.seller_day", "dws.seller_month"}),
    "one above a folder": (["1+path:flows/dws"], {"dws.seller_month", "dws.seller_day", "dwd.orders", "ods.sellers"}),
    "modified": (["state:modified"], {"dwd.orders"}),
    "modified and one below": (["state:modified+1"], {"dwd.orders", "dws.seller_day"}),
    "union by space": (["ods.orders ads.top"], {"ods.orders", "ads.top"}),
    "union by repetition": (["ods.orders", "ads.top"], {"ods.orders", "ads.top"}),
    "intersection": (["tag:daily,dws.*"], {"dws.seller_day"}),
    "intersection of reaches": (
        ["+dws.seller_month,dwd.orders+"],
        {"dwd.orders", "dws.seller_day", "dws.seller_month"},
    ),
    "intersection binds more": (["tag:daily,dws.* ads.top"], {"dws.seller_day", "ads.top"}),
}


def chosen(include, exclude=(), modified=lambda: {name("dwd.orders"), name("old.gone")}):
    return {str(table) for table in select_tables(Graph(SHOP), SHOP, include, exclude, modified)}


@pytest.mark.parametrize(("include", "expected"), CHOSEN.values(), ids=CHOSEN)
def test_select(include, expected):
    assert chosen(include) == expected


EXCLUDED = {
    "from everything": ([], ["dws.*"], ALL - {"dws.seller_day", "dws.seller_month"}),
    "from a selection": (
        ["+ads.top"],
        ["+dwd.orders", "ods.sellers"],
        {"dws.seller_day", "dws.seller_month", "ads.top"},
    ),
}


@pytest.mark.parametrize(("include", "exclude", "expected"), EXCLUDED.values(), ids=EXCLUDED)
def test_exclude(include, exclude, expected):
    assert chosen(include, exclude) == expected


NOTHING = {
    "a misspelt name": (
        ["dws.seler_day"],
        "'dws.seler_day' selects no table; close: `dws.seller_day`",
        "known: `ads.top`,",
    ),
    "a misspelt tag": (["tag:dayly"], "'tag:dayly' selects no table; close: `tag:daily`", "`tag:core`, `tag:daily`"),
    "a misspelt folder": (["path:flow/dws"], "'path:flow/dws' selects no table; close: `path:flows/dws`", "path:flows"),
    "part of a file's name": (["path:flows/dws/seller"], "selects no table", "known: `path:flows`"),
    "a glob": (["xyz.*"], "'xyz.*' selects no table", "known: `ads.top`"),
    "one of several": (["ods.orders zzz"], "'zzz' selects no table", "known"),
    "an intersection": (["ods.*,tag:core"], "no table is in all of `ods.*` and `tag:core`", "write a space instead"),
}


@pytest.mark.parametrize(("include", "what", "fix"), NOTHING.values(), ids=NOTHING)
def test_selects_nothing(include, what, fix):
    with pytest.raises(Mistake) as caught:
        chosen(include)
    assert caught.value.code == "PLAN_SELECTS_NOTHING"
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")


def test_a_misspelt_exclusion_is_a_mistake_too():
    with pytest.raises(Mistake, match=r"close: `dws.seller_day`"):
        chosen([], ["dws.seller_da"])


def test_everything_is_excluded():
    with pytest.raises(Mistake, match="excluded by `tag:daily`") as caught:
        chosen(["dws.seller_day"], ["tag:daily"])
    assert caught.value.code == "PLAN_SELECTS_NOTHING"


def test_that_nothing_was_modified_is_an_answer():
    assert chosen(["state:modified+"], modified=set) == set()
    assert chosen(["state:modified,dws.*"]) == set()


MALFORMED = {
    "only a plus": ("+", "names no table"),
    "two plus": ("++", "names no table"),
    "two plus after it": ("x++", "has a + in its middle"),
    "a plus in the middle": ("a+b", "has a + in its middle"),
    "empty": ("", "is empty"),
    "blank": ("  ", "is empty"),
    "an empty part": ("dws.*,", "names no table"),
    "an unknown method": ("tga:daily", "has the unknown method `tga`; close: `tag`"),
    "a method without value": ("tag:", "has nothing after `tag:`"),
    "an unknown state": ("state:modifed", "unknown state `modifed`; close: `modified`"),
    "two tables of that name": ("orders", "`orders` may be `dwd.orders` and `ods.orders`"),
}


@pytest.mark.parametrize(("text", "what"), MALFORMED.values(), ids=MALFORMED)
def test_malformed(text, what):
    with pytest.raises(Mistake) as caught:
        chosen([text])
    assert caught.value.code == "PLAN_SELECTION"
    assert what in caught.value.what
    assert caught.value.fix


def test_modified_needs_something_to_compare_with():
    with pytest.raises(Mistake, match="nothing to compare with"):
        chosen(["state:modified"], modified=None)


def test_a_tag_where_there_are_none():
    bare = flow(task("ods.a"))
    with pytest.raises(Mistake, match="add tags="):
        select_tables(Graph(bare), bare, ["tag:daily"])
