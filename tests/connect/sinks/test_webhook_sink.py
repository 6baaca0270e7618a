"""Addresses: one post for each commit, in order, each with a key that stays when it is sent again."""

import hashlib
import hmac
from pathlib import Path

import pytest

from tests.connect.sinks.sink_project import Shop
from tests.servers.http_server import Server, write_netrc


def declare(shop: Shop, hook: Server, options: str = "") -> None:
    shop.sinks(f'rn.sink("ods.orders", rn.webhook("{hook.url("/hook")}"{options}))')


def keys(hook: Server) -> list[str]:
    return [post.headers["Idempotency-Key"] for post in hook.posts]


def test_each_commit_is_told_in_order(shop: Shop, hook: Server) -> None:
    declare(shop, hook)
    first = shop.run()
    shop.sinks()
    shop.day("a", (1, "2026-01-01", "7.00"))
    second = shop.run()
    shop.day("b", (3, "2026-01-03", "8.00"))
    third = shop.run()
    declare(shop, hook)
    assert (shop.sent().commits, shop.run().sinks) == (2, ())
    bodies = [post.json for post in hook.posts]
    assert [body["commit"] for body in bodies] == [first.commit, second.commit, third.commit]
    assert [(body["rows_added"], body["rows_removed"], body["whole"]) for body in bodies] == [
        (2, 0, True),
        (1, 2, False),
        (1, 0, False),
    ]
    assert bodies[1]["added"] == [{"id": 1, "day": "2026-01-01", "amount": "7.00"}]
    assert [row["id"] for row in bodies[1]["removed"]] == [1, 2]
    assert bodies[0]["table"] == "ods.orders" and len(set(keys(hook))) == 3


def test_a_kill_after_it_was_accepted_sends_it_again_with_the_same_key(shop: Shop, hook: Server) -> None:
    declare(shop, hook)
    shop.killed()
    shop.day("b", (3, "2026-01-03", "8.00"))
    assert shop.sent().commits == 2
    one, again, other = hook.posts
    assert keys(hook)[0] == keys(hook)[1] != keys(hook)[2]
    assert one.body == again.body and other.json["rows_added"] == 1


def test_many_rows_are_several_posts(shop: Shop, hook: Server) -> None:
    shop.day("b", *((number, "2026-01-03", "1.00") for number in range(3, 6)))
    declare(shop, hook, ", batch=2")
    shop.run()
    assert [[row["id"] for row in post.json["added"]] for post in hook.posts] == [[1, 2], [3, 4], [5]]
    assert [(post.json["part"], post.json["parts"]) for post in hook.posts] == [(1, 3), (2, 3), (3, 3)]


def test_rows_may_be_left_out(shop: Shop, hook: Server) -> None:
    declare(shop, hook, ", rows=False")
    shop.run()
    (post,) = hook.posts
    assert "added" not in post.json and post.json["rows_added"] == 2


def test_who_knows_the_secret_can_tell_who_sent_it(shop: Shop, hook: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s3cret")
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    hook.token = "t0ken"
    options = ', secret=rn.secret("HOOK_SECRET"), token=rn.secret("HOOK_TOKEN"), headers={"X-Team": "data"}'
    declare(shop, hook, options)
    shop.run()
    (post,) = hook.posts
    made = hmac.new(b"s3cret", post.body, hashlib.sha256).hexdigest()
    assert post.headers["X-Runnel-Signature"] == f"sha256={made}" and post.headers["X-Team"] == "data"


def test_the_declared_token_is_sent_though_netrc_knows_the_host(
    shop: Shop, hook: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_netrc(tmp_path, monkeypatch)
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    declare(shop, hook, ', token=rn.secret("HOOK_TOKEN")')
    shop.run()
    assert [post.headers["Authorization"] for post in hook.posts] == ["Bearer t0ken"]


PASSING = {"an error": ("status", 503), "too many": ("status", 429), "hung up": ("drop", None)}


@pytest.mark.parametrize(("kind", "value"), PASSING.values(), ids=PASSING)
def test_what_passes_is_tried_again_within_the_run(shop: Shop, hook: Server, kind: str, value: int | None) -> None:
    declare(shop, hook)
    hook.fail(kind, value)
    assert shop.sent().state == "delivered" and len(hook.posts) == 1


def test_an_answer_that_was_lost_means_the_same_key_again(shop: Shop, hook: Server) -> None:
    declare(shop, hook)
    hook.fail("hang_up_after")
    assert shop.sent().state == "delivered"
    sent = [one.headers["Idempotency-Key"] for one in hook.asked("/hook")]
    assert len(sent) == 2 and len(set(sent)) == 1


def test_what_does_not_pass_is_told_at_once_and_nothing_is_skipped(
    shop: Shop, hook: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "wr0ng")
    hook.token = "t0ken"
    declare(shop, hook, ', token=rn.secret("HOOK_TOKEN")')
    ran = shop.run()
    (sent,) = ran.sinks
    assert ran.state == "succeeded" and sent.error is not None and "answered 401" in sent.error.what
    assert len(hook.asked()) == 1
    shop.day("b", (3, "2026-01-03", "8.00"))
    shop.run()
    assert hook.posts == [] and shop.states()[0]["problem"] is not None
    assert "wr0ng" not in str(shop.states()) + str(sent)
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    assert shop.sent().state == "delivered"
    assert [post.json["rows_added"] for post in hook.posts] == [2, 1]
