"""Keys of the settings stand neither in provenance nor in errors, logs and the history of runs."""

import json
import logging
from pathlib import Path

import pytest

from runnel.lake.flow_state import runs
from runnel.model.secret_mask import SecretMask
from runnel.service.log_files import JsonLineFormatter
from tests.run.project import Project, did

SETTINGS = """
[project]
name = "shop"
[params]
pin = { env = "PIN" }
[spark.conf]
spark.hadoop.fs.s3a.secret.key = "literal-key-1234"
spark.hadoop.fs.s3a.endpoint = "http://127.0.0.1:9000"
"""
FLOW = """
@rn.task("dws.login")
def login(orders, *, pin: str = ""):
    {body}
    return orders
"""
FAILING = 'raise ValueError(f"can not log in with {pin!r} and literal-key-1234")'


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project with a parameter from the environment, and a key in its settings."""
    monkeypatch.setenv("PIN", "it's 4711")
    project.write("runnel.toml", SETTINGS)
    project.orders("a", (1, "2026-01-01", 5))
    return project


def test_an_error_and_its_traces_show_no_secret(shop: Project) -> None:
    shop.flow(FLOW.format(body=FAILING))
    result = shop.run()
    (error,) = result.errors
    assert 'can not log in with "***" and ***' in error.what
    with shop.open() as lake:
        record = lake.store.db.read(lambda connection: runs.find_run(connection, str(result.run)))
    texts = [str(error), Path(str(result.log)).read_text(), json.dumps(record.detail), json.dumps(result.json())]
    assert "ValueError" in texts[1] and not [text for text in texts if "4711" in text or "literal-key" in text]


def test_why_shows_no_key(shop: Project) -> None:
    shop.flow(FLOW.format(body="pass"))
    assert did(shop.run())["dws.login"] == "full"
    with shop.open() as lake:
        provenance = lake.why("dws.login")
        expected = {
            "spark.hadoop.fs.s3a.secret.key": "***",
            "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000",
        }
        assert provenance.json()["conf"] == expected
        assert "literal-key" not in str(provenance) + json.dumps(provenance.json())


def test_a_key_that_an_earlier_version_stored_is_not_shown(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.run.provenance.run_basis.mask_settings", dict)
    monkeypatch.setattr("runnel.run.provenance.run_basis.RunBasis._mask_secrets", lambda _, text: text)
    shop.flow(FLOW.format(body="pass"))
    shop.run()
    with shop.open() as lake:
        assert "literal-key" not in str(lake.why("dws.login")) + json.dumps(lake.why("dws.login").json())


def test_the_logs_of_processes_show_no_secret() -> None:
    formatter = JsonLineFormatter(SecretMask(frozenset({'pa"ss 1'})))
    try:
        raise ValueError('pa"ss 1')
    except ValueError as error:
        exception = (ValueError, error, None)
        record = logging.LogRecord("runnel", logging.ERROR, "", 0, "failed: %s", ("pa%22ss%201",), exception)
    fields = json.loads(formatter.format(record))
    assert fields["what"] == "failed: ***" and fields["trace"] == "ValueError: ***\n"


def test_short_values_stay() -> None:
    """A log in which each 5 is hidden could not be read."""
    assert SecretMask(frozenset({"5", "abc"})).hide("5 rows of abc") == "5 rows of abc"
    assert SecretMask(frozenset({"abcd", "abcdefg"})).hide("abcdefgh") == "***h"
