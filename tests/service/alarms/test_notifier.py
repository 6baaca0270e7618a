"""Alarms are told to a webhook, by e-mail and to a command, each once, and once more when they are over."""

import json
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from runnel.lake.control import alarms, notifications
from runnel.lake.control.alarms import Alarm
from runnel.lake.control.declarations import AlertDeclaration
from runnel.lake.control.notifications import Notification
from runnel.lake.store import Store
from runnel.project.inspection.alarms import AlarmStatus
from runnel.service.alarms.command_channel import run_command
from runnel.service.alarms.email_channel import send_email
from runnel.service.alarms.message import AlarmMessage
from runnel.service.alarms.notifier import Notifier
from tests.servers.http_server import Server, certificate, write_netrc
from tests.servers.smtp import Server as MailServer
from tests.service.alarms.monitored_lake import Site

ALL = ("failed", "late", "stream", "sink", "worker")
ALARM = Alarm("failed/x", "failed", "schedule `x` failed: ünlucky", "2026-01-02T02:00:00.000000Z", fix="mend it")
MESSAGE = AlarmMessage(ALARM, "alarm", "shop")


class Told(Site):
    """A lake, and who tells what is wrong with it."""

    def __init__(self, store: Store, root: Path) -> None:
        super().__init__(store)
        self.herald = Notifier(store.db, "shop", root, self.now)

    def tell(self, *heralds: Notifier) -> None:
        """Look, and tell what is due, to the end."""
        self.look()
        for herald in heralds or (self.herald,):
            herald.start_due_notifications()
        for herald in heralds or (self.herald,):
            herald.finish(30)

    def known(self) -> list[Notification]:
        with self.store.db.read_transaction() as connection:
            found = alarms.read_alarms(connection, over_after="")
            return sorted(notifications.list_notifications(connection, found), key=lambda one: (one.alert, one.word))


@pytest.fixture
def site(store: Store, tmp_path: Path) -> Told:
    return Told(store, tmp_path)


@pytest.fixture
def hook() -> Iterator[Server]:
    with Server() as server:
        yield server


def listener(
    url: str, name: str = "team", on: tuple[str, ...] = ALL, tables: Any = None, **way: Any
) -> AlertDeclaration:
    return AlertDeclaration(name, on, tables, {"webhook": url, **way})


def test_a_webhook_is_told_once_and_once_more_when_it_is_over(both: Store, tmp_path: Path, hook: Server) -> None:
    site = Told(both, tmp_path)
    site.declare(listener(hook.url("/hook")))
    run = site.ran(state="failed")
    for _ in range(3):
        site.tell()
    (post,) = hook.posts
    told = post.json
    assert (told["alarm"], told["state"], told["level"]) == ("failed/schedule/nightly", "open", "alarm")
    assert (told["project"], told["run"], told["tables"]) == ("shop", run, ["dws.day"])
    assert told["blocks"] == ["dws.month", "sink dws.month:files-1"]
    assert told["text"].splitlines()[0] == "shop: schedule `nightly` failed: `dws.day`: 3 rows have no seller"
    assert post.headers["Idempotency-Key"] == "failed/schedule/nightly/1/alarm"
    site.ran()
    for _ in range(3):
        site.tell()
    assert [one.json["state"] for one in hook.posts] == ["open", "over"]
    assert hook.posts[1].json["over_at"] is not None


def test_of_several_who_would_tell_it_at_once_one_does(both: Store, tmp_path: Path, hook: Server) -> None:
    site = Told(both, tmp_path)
    site.declare(listener(hook.url("/hook")))
    site.ran(state="failed")
    (alarm,) = site.look()
    for tries, now in enumerate((site.now(), site.now() + timedelta(minutes=5))):
        one = Notification(alarm, "team", "alarm", tries)
        with ThreadPoolExecutor(4) as pool:
            claims = list(pool.map(lambda _, one=one, now=now: notifications.claim(both.db, one, now), range(8)))
        assert sum(claims) == 1


def test_two_services_tell_it_once(both: Store, tmp_path: Path, hook: Server) -> None:
    site = Told(both, tmp_path)
    site.declare(listener(hook.url("/hook")))
    site.ran(state="failed")
    site.tell(*(Notifier(both.db, "shop", tmp_path, site.now) for _ in range(4)))
    assert len(hook.posts) == 1


def test_a_warning_that_comes_true_is_told_twice(site: Told, hook: Server) -> None:
    site.declare(listener(hook.url("/hook")), day="02:30")
    site.at = site.at.replace(day=1, hour=2)
    site.ran()
    site.at = site.at.replace(day=2, minute=0)
    site.tell()
    assert hook.posts == []  # its run is due in time
    site.ran(state="failed")
    site.tell()
    site.pass_(hours=1)
    site.tell()
    site.ran()
    site.tell()
    found = [(one.json["kind"], one.json["level"], one.json["state"]) for one in hook.posts]
    assert found[:3] == [("failed", "alarm", "open"), ("late", "warning", "open"), ("late", "alarm", "open")]
    assert sorted(found[3:]) == [("failed", "alarm", "over"), ("late", "alarm", "over")]


CONCERNS = {
    "all": (ALL, None, 1),
    "another kind": (("late", "sink"), None, 0),
    "its own table": (ALL, frozenset({"dws.day"}), 1),
    "a table that is blocked": (ALL, frozenset({"dws.month"}), 1),
    "a table above": (ALL, frozenset({"ods.orders"}), 0),
}


@pytest.mark.parametrize(("on", "tables", "expected"), CONCERNS.values(), ids=CONCERNS)
def test_whom_it_concerns(site: Told, hook: Server, on: tuple[str, ...], tables: Any, expected: int) -> None:
    site.declare(listener(hook.url("/hook"), on=on, tables=tables))
    site.ran(state="failed")
    site.tell()
    assert len(hook.posts) == expected


def test_what_can_not_be_told_is_tried_again_later_and_given_up_at_last(site: Told, hook: Server) -> None:
    site.declare(listener(hook.url("/hook")))
    site.ran(state="failed")
    hook.fail("status", 503, times=100)
    tries = []
    for pause in (0, 4, 1, 29, 1, 120, 600, 1800, 3600, 86_400):
        site.pass_(seconds=pause)
        site.tell()
        tries.append(len(hook.requests))
    assert tries == [1, 1, 2, 2, 3, 4, 5, 6, 7, 7]
    (known,) = site.known()
    assert (known.told_at, known.problem) == (None, "127.0.0.1 answered 503")


def test_told_at_the_second_try(site: Told, hook: Server) -> None:
    site.declare(listener(hook.url("/hook")))
    site.ran(state="failed")
    hook.fail("drop")
    site.tell()
    assert "does not answer" in str(site.known()[0].problem)
    site.pass_(seconds=5)
    site.tell()
    (known,) = site.known()
    assert (known.tries, known.problem) == (2, None) and known.told_at is not None


def test_one_that_hangs_holds_up_no_other(site: Told, hook: Server) -> None:
    hook.fail("slow", 2.0, path="/hook/slow")
    site.declare(listener(hook.url("/hook/slow"), "a"), listener(hook.url("/hook/fast"), "b"))
    site.ran(state="failed")
    site.look()
    site.herald.start_due_notifications()
    until(lambda: any(one.path == "/hook/fast" for one in hook.posts))
    assert [one.problem for one in site.known() if one.alert == "a"] in ([], [None])  # it is still at it
    site.herald.finish(30)


def test_secrets_come_from_the_environment(site: Told, hook: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    hook.token = "hush"
    site.declare(listener(hook.url("/hook"), headers=[["Authorization", {"secret": "HOOK_AUTH"}]]))
    site.ran(state="failed")
    site.tell()
    (known,) = site.known()
    assert known.problem == "the secret HOOK_AUTH comes from the variable HOOK_AUTH, which is not set"
    (shown,) = [AlarmStatus(known.alarm, (known,))]
    assert shown.json()["told"][0]["problem"] == known.problem
    assert shown.lines()[-1] == f"  could not be sent to team: {known.problem}"
    monkeypatch.setenv("HOOK_AUTH", "Bearer hush")
    site.pass_(seconds=5)
    site.tell()
    assert site.known()[0].told_at is not None
    assert "hush" not in catalog_text(site.store)


def test_a_declared_header_is_sent_though_netrc_knows_the_host(
    site: Told, hook: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_netrc(tmp_path, monkeypatch)
    monkeypatch.setenv("HOOK_AUTH", "Bearer hush")
    site.declare(listener(hook.url("/hook"), headers=[["Authorization", {"secret": "HOOK_AUTH"}]]))
    site.ran(state="failed")
    site.tell()
    assert [post.headers["Authorization"] for post in hook.posts] == ["Bearer hush"]


def test_that_it_is_over_is_told_to_whom_it_was_not_new(site: Told, hook: Server) -> None:
    site.ran(state="failed")
    site.tell()
    site.ran()
    site.tell()
    site.declare(listener(hook.url("/hook")))  # it was over before
    site.tell()
    assert hook.posts == []


def test_an_e_mail(site: Told) -> None:
    with MailServer() as server:
        way = {"email": ["ada@example.org", "bob@example.org"], "smtp": f"smtp://127.0.0.1:{server.port}"}
        site.declare(AlertDeclaration("mail", ALL, None, way))
        site.ran(state="failed")
        site.tell()
        site.ran()
        site.tell()
        first, second = server.mails
    assert first.to == ("ada@example.org", "bob@example.org") and first.sender.startswith("runnel@")
    assert first.message["Subject"] == "shop: schedule `nightly` failed: `dws.day`: 3 rows have no seller"
    text = first.message.get_content()  # type: ignore[attr-defined]
    assert "blocks `dws.month`" in text and "to do: correct the rows" in text
    assert second.message["Subject"].strip().startswith("shop: over: schedule `nightly` failed")


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_an_e_mail_over_tls_with_a_password(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    monkeypatch.setenv("SMTP_PASSWORD", "hush")
    with MailServer(pem, all_tls=scheme == "smtps", password="hush") as server:
        way = {"email": ["ada@example.org"], "smtp": f"{scheme}://runnel%40shop.org@127.0.0.1:{server.port}"}
        send_email({**way, "password": {"secret": "SMTP_PASSWORD"}}, MESSAGE)
        (mail,) = server.mails
    assert (mail.is_secure, mail.user, mail.sender) == (True, "runnel@shop.org", "runnel@shop.org")
    assert "ünlucky" in mail.message["Subject"]


def test_a_certificate_that_nobody_knows_and_a_wrong_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runnel.errors import Unreachable

    pem = certificate(tmp_path)
    monkeypatch.setenv("SMTP_PASSWORD", "wrong")
    with MailServer(pem, password="hush") as server:
        way = {"email": ["ada@example.org"], "smtp": f"smtp://ada@127.0.0.1:{server.port}"}
        way = {**way, "password": {"secret": "SMTP_PASSWORD"}}
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            send_email(way, MESSAGE)
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        with pytest.raises(Unreachable, match="535") as told:
            send_email(way, MESSAGE)
        assert "wrong" not in str(told.value).replace("wrong password", "")
        assert server.mails == []


def script(folder: Path, text: str) -> str:
    path = folder / "notify.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return "notify.sh"


def test_a_command(site: Told, tmp_path: Path) -> None:
    command = script(tmp_path, 'cat > "$1.json"; pwd > where')
    site.declare(AlertDeclaration("pager", ALL, None, {"command": f"{command} 'a $HOME'"}))
    site.ran(state="failed")
    site.tell()
    told = json.loads((tmp_path / "a $HOME.json").read_text())
    assert told["alarm"] == "failed/schedule/nightly" and told["text"].startswith("shop: schedule")
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)


WRONG = {
    "it fails": ("echo no such pager >&2; exit 4", r"notify.sh` ended with 4: no such pager"),
    "it hangs": ("sleep 60", r"notify.sh` took longer than 0.3 s"),
    "it reads nothing": ("exit 0", None),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_a_command_that_goes_wrong(tmp_path: Path, text: str, expected: str | None) -> None:
    from runnel.errors import RunnelError

    command = script(tmp_path, text)
    if expected is None:
        run_command(command, MESSAGE, tmp_path)
        return
    start = time.monotonic()
    with pytest.raises(RunnelError, match=expected):
        run_command(command, MESSAGE, tmp_path, 0.3 if "sleep" in text else 30)
    assert time.monotonic() - start < 10


def test_a_command_that_there_is_not(tmp_path: Path) -> None:
    from runnel.errors import RunnelError

    with pytest.raises(RunnelError, match=r"`nowhere.sh` can't be started: No such file"):
        run_command("nowhere.sh", MESSAGE, tmp_path)


def until(is_so: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def catalog_text(store: Store) -> str:
    """Return all that the catalog says about alerts and alarms."""
    from runnel.lake.catalog import schema

    found = []
    for table in (schema.declared, schema.alarms, schema.notifications):
        found += [
            str(row) for row in store.db.read(lambda connection, table=table: connection.execute(table.select()).all())
        ]
    return "\n".join(found)
