"""Tags stay where they are put."""

from collections.abc import Callable

import pytest

from runnel.errors import Mistake
from runnel.lake.history.branches import fork_branch
from runnel.lake.history.tags import create_tag, delete_tag, list_tags
from runnel.lake.store import Store
from tests.lake.factories import add, create, read, rows
from tests.lake.merge.test_revert import expire
from tests.lake.table_changes import branch

T = "ods.orders"


def code(act: Callable[[], object]) -> str:
    with pytest.raises(Mistake) as caught:
        act()
    assert caught.value.fix
    return caught.value.code


def test_a_tag_names_a_commit_for_good(both: Store) -> None:
    first = create(both, T, rows((1, "d1", 5)))
    made = create_tag(both, "v1")
    assert (made.name, made.commit, made.author) == ("v1", first.id, "ada")
    second = add(both, T, rows((2, "d2", 6)))
    assert read(both, T, "v1") == [(1, "d1", 5)]
    assert code(lambda: create_tag(both, "v1")) == "TAG_EXISTS"
    assert create_tag(both, "v1", first.id) == made
    assert create_tag(both, "v1", force=True).commit == second.id
    create_tag(both, "v0.9-rc", "main~1")
    assert [found.name for found in both.db.read(list_tags)] == ["v0.9-rc", "v1"]
    assert delete_tag(both, "v1").commit == second.id
    assert code(lambda: delete_tag(both, "v0.9")) == "TAG_UNKNOWN"
    assert [found.name for found in both.db.read(list_tags)] == ["v0.9-rc"]


def test_a_name_is_a_branch_or_a_tag(both: Store) -> None:
    branch(both, "dev")
    create_tag(both, "v1")
    assert code(lambda: create_tag(both, "dev")) == "TAG_IS_BRANCH"
    assert code(lambda: create_tag(both, "main", force=True)) == "TAG_IS_BRANCH"
    assert code(lambda: fork_branch(both.db, "v1", both.commit(), "ada")) == "BRANCH_IS_TAG"


def test_only_retained_commits_are_tagged(both: Store) -> None:
    first = create(both, T, rows((1, "d1", 5)))
    add(both, T, rows((2, "d2", 6)))
    expire(both, first)
    assert code(lambda: create_tag(both, "v1", first.id)) == "REF_EXPIRED"
    assert both.db.read(list_tags) == []


@pytest.mark.parametrize("name", ["", "V1", "1v", "a b", "a'b", "a/b", "ä", "a" * 64])
def test_names_obey_one_rule(store: Store, name: str) -> None:
    assert code(lambda: create_tag(store, name)) == "NAME_TAG"
