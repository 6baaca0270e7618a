"""`rn.alert`: declare who is told when something is wrong."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from runnel.declare.model.flow import ALARMS, Alert
from runnel.declare.model.secret import Secret
from runnel.declare.options.http_request_options import pairs_of
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current
from runnel.errors import nearest
from runnel.names import shown

KNOWN = ("webhook", "headers", "email", "smtp", "password", "sender", "command", "on", "select")
_WAYS = ("webhook", "email", "command")
_BELONGS = {"headers": "webhook", "smtp": "email", "password": "email", "sender": "email"}
_URL = re.compile(r"https?://[^\s/@]+(/\S*)?\Z")
_SMTP = re.compile(r"smtps?://((?P<user>[^\s/:]+)(?P<password>:[^\s/]*)?@)?(\[[0-9a-f:]+\]|[^\s/:@]+)(:\d{1,5})?/?\Z")
_ADDRESS = re.compile(r"[^\s@<>,;\"]+@[^\s@<>,;\"]+\Z")


def alert(
    name: str,
    *,
    webhook: str | Secret | None = None,
    headers: Mapping[str, str | Secret] | None = None,
    email: str | Sequence[str] | None = None,
    smtp: str | None = None,
    password: Secret | None = None,
    sender: str | None = None,
    command: str | None = None,
    on: str | Sequence[str] | None = None,
    select: str | Sequence[str] | None = None,
    **unknown: object,
) -> None:
    """Declare who is told when something is wrong, once, and again when it is over.

    One of: `webhook="https://..."`, which gets a POST of JSON, with `headers`; `email=["ada@example.org"]` through
    `smtp="smtp://user@host:25"` (or smtps://), with `password=rn.secret(...)` and perhaps a `sender`; or
    `command="notify.sh"`, which gets the JSON on standard input. `on` says what about: "failed", "late",
    "schedule", "stream", "sink", "worker", "disk", all by default. With `select` only what
    concerns those tables is told.
    """
    registry = current()
    place = registry.here()
    values: dict[str, Any] = {"name": name, "webhook": webhook, "headers": headers, "email": email, "smtp": smtp}
    values |= {"password": password, "sender": sender, "command": command, "on": on, "select": select}
    given = Given(f"alert {shown(name)}", values, lambda _, mistake: registry.note(mistake, place))
    given.unknown(list(unknown), KNOWN)
    _refuse_wrong_ways(given, values)
    found = Alert(
        name=given.text("name") or "?",
        place=place,
        on=_kinds(given),
        select=" ".join(given.texts("select")),
        webhook=_url(given, webhook),
        headers=pairs_of(given, "headers", headers),
        email=_addresses(given, "email", given.texts("email", "an address")),
        smtp=_server(given, given.text("smtp")),
        password=_password(given, password),
        sender=next(iter(_addresses(given, "sender", (given.text("sender") or "",) if sender else ())), None),
        command=_command(given),
    )
    registry.add(found)


def _refuse_wrong_ways(given: Given, values: Mapping[str, Any]) -> None:
    chosen = [name for name in _WAYS if values[name] is not None]
    if len(chosen) != 1:
        what = f"it has {' and '.join(chosen)}, but needs one of them" if chosen else "it does not say how to tell"
        given.wrong("webhook", what, 'write webhook="https://...", email="ada@example.org" or command="notify.sh"')
        return
    for name, way in _BELONGS.items():
        if values[name] is not None and way not in chosen:
            given.wrong(name, f"`{name}` goes with {way}", f"leave it out, or write {way}=...")
    if chosen == ["email"] and values["smtp"] is None:
        given.wrong("smtp", "`smtp` is missing", 'name the server: smtp="smtp://user@host:25"')


def _kinds(given: Given) -> tuple[str, ...]:
    found = given.texts("on", "a word")
    for word in found:
        if word not in ALARMS:
            close = nearest(word, ALARMS)
            what = f"`on` can't be {shown(word)}" + (f"; close: `{close}`" if close else "")
            given.wrong("on", what, f"use some of {', '.join(ALARMS)}")
    return found or ALARMS


def _url(given: Given, url: object) -> str | Secret | None:
    """Return an address; messages don't show it, since it may be what nobody should see."""
    if url is None or isinstance(url, Secret) or (isinstance(url, str) and _URL.match(url)):
        return url
    fix = 'write webhook="https://host/path", or webhook=rn.secret("HOOK_URL") where the address is a secret'
    given.wrong("webhook", "the address must start with http:// or https://, and have no password", fix)
    return None


def _addresses(given: Given, name: str, found: tuple[str, ...]) -> tuple[str, ...]:
    for address in found:
        if not _ADDRESS.match(address):
            given.wrong(name, f"{shown(address)} is not an address of e-mail", f'write {name}="ada@example.org"')
    return found


def _server(given: Given, smtp: str | None) -> str | None:
    found = _SMTP.match(smtp) if smtp is not None else None
    if smtp is not None and found is None:
        given.wrong("smtp", "`smtp` is not the address of a mail server", 'write smtp="smtp://user@host:25"')
    elif found is not None and found["password"] is not None:
        fix = 'leave it out of the address: password=rn.secret("SMTP_PASSWORD")'
        given.wrong("smtp", "the address has a password in it", fix)
    return smtp


def _password(given: Given, password: object) -> Secret | None:
    if password is None or isinstance(password, Secret):
        return password
    fix = 'write password=rn.secret("SMTP_PASSWORD")'
    given.wrong("password", "`password` is a secret, which must not stand in a file", fix)
    return None


def _command(given: Given) -> str | None:
    found = given.text("command")
    try:
        if found is not None:
            shlex.split(found)
    except ValueError as error:
        given.wrong("command", f"{shown(found)} can't be read: {str(error).lower()}", "close what is quoted")
    return found
