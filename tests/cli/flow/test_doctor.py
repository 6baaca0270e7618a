"""`runnel doctor` says which part of the catalog's address is wrong, in the same words as every other command."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

if TYPE_CHECKING:
    from tests.cli.conftest import Done

pytestmark = pytest.mark.postgres
WRONG_ADDRESSES = {
    "database": (
        {"database": "nope"},
        "there is no database `nope` at 127.0.0.1:{port}, which lake.catalog names",
        "create it (`createdb nope`), or correct lake.catalog",
    ),
    "role": (
        {"username": "nobody_here"},
        "PostgreSQL at 127.0.0.1:{port} refuses the role `nobody_here` of lake.catalog: role",
        "correct the user or the password in lake.catalog, or create it",
    ),
    "host": (
        {"host": "nohost.invalid"},
        "does not answer: there is no host `nohost.invalid`",
        "correct the host, or the name server of this machine",
    ),
    "port": (
        {"port": 9},
        "does not answer: the host `127.0.0.1` answers, but nothing listens on port 9",
        "correct the port, or start the database",
    ),
}


@pytest.mark.parametrize(("parts", "what", "fix"), WRONG_ADDRESSES.values(), ids=WRONG_ADDRESSES)
def test_a_catalog_that_can_not_be_used(
    cli: Callable[..., "Done"], tmp_path: Path, postgres: str, parts: dict[str, str | int], what: str, fix: str
) -> None:
    url = sa.make_url(postgres)
    address = url.set(**parts).render_as_string(hide_password=False)
    (tmp_path / "runnel.toml").write_text(f'[project]\nname = "shop"\n[lake]\ncatalog = "{address}"\n')
    done = cli("doctor", "--json")
    (catalog,) = [fact for fact in done.json["facts"] if fact["name"] == "catalog"]
    assert done.code == 1 and catalog["state"] == "fail"
    assert what.format(port=url.port) in catalog["what"] and catalog["fix"] == fix
