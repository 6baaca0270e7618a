"""`rn.alert`: declare who is notified when something goes wrong."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from runnel.declare.model.flow import ALARM_KINDS, Alert
from runnel.declare.model.secret import Secret
from runnel.declare.options.http_request_options import read_pairs
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry
from runnel.errors import did_you_mean
from runnel.names import quote_value

OPTION_NAMES = ("webhook", "headers", "email", "smtp", "password", "sender", "command", "on", "select")
_CHANNELS = ("webhook", "email", "command")
_CHANNEL_OF_OPTION = {"headers": "webhook", "smtp": "email", "password": "email", "sender": "email"}
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
    """Declare who is notified when something goes wrong: once when it starts, and again when it is over.

    One of: `webhook="https://..."`, which gets a POST of JSON, with `headers`; `email=["ada@example.org"]` through
    `smtp="smtp://user@host:25"` (or smtps://), with `password=rn.secret(...)` and perhaps a `sender`; or
    `command="notify.sh"`, which gets the JSON on standard input. `on` lists the kinds of alarms: "failed", "late",
    "schedule", "stream", "sink", "worker", "disk", all by default. `select` limits the alert to alarms about the
    selected tables.
    """
    registry = current_registry()
    place = registry.caller_location()
    values: dict[str, Any] = {"name": name, "webhook": webhook, "headers": headers, "email": email, "smtp": smtp}
    values |= {"password": password, "sender": sender, "command": command, "on": on, "select": select}
    reader = OptionReader(
        f"alert {quote_value(name)}", values, lambda _, mistake: registry.report_mistake(mistake, place)
    )
    reader.reject_unknown(list(unknown), OPTION_NAMES)
    _check_channels(reader, values)
    declaration = Alert(
        name=reader.text("name") or "?",
        place=place,
        on=_read_alarm_kinds(reader),
        select=" ".join(reader.texts("select")),
        webhook=_check_url(reader, webhook),
        headers=read_pairs(reader, "headers", headers),
        email=_check_addresses(reader, "email", reader.texts("email", "an address")),
        smtp=_check_smtp(reader, reader.text("smtp")),
        password=_check_password(reader, password),
        sender=next(iter(_check_addresses(reader, "sender", (reader.text("sender") or "",) if sender else ())), None),
        command=_read_command(reader),
    )
    registry.add(declaration)


def _check_channels(reader: OptionReader, values: Mapping[str, Any]) -> None:
    chosen = [name for name in _CHANNELS if values[name] is not None]
    if len(chosen) != 1:
        what = f"it has {' and '.join(chosen)}, but needs one of them" if chosen else "it names no channel"
        reader.reject("webhook", what, 'write webhook="https://...", email="ada@example.org" or command="notify.sh"')
        return
    for name, channel in _CHANNEL_OF_OPTION.items():
        if values[name] is not None and channel not in chosen:
            reader.reject(name, f"`{name}` goes with {channel}", f"leave it out, or write {channel}=...")
    if chosen == ["email"] and values["smtp"] is None:
        reader.reject("smtp", "`smtp` is missing", 'name the server: smtp="smtp://user@host:25"')


def _read_alarm_kinds(reader: OptionReader) -> tuple[str, ...]:
    kinds = reader.texts("on", "a word")
    for kind in kinds:
        if kind not in ALARM_KINDS:
            what = f"`on` can't be {quote_value(kind)}" + did_you_mean(kind, ALARM_KINDS)
            reader.reject("on", what, f"use some of {', '.join(ALARM_KINDS)}")
    return kinds or ALARM_KINDS


def _check_url(reader: OptionReader, url: object) -> str | Secret | None:
    """Check a webhook address; messages don't show it, because it may contain a secret."""
    if url is None or isinstance(url, Secret) or (isinstance(url, str) and _URL.match(url)):
        return url
    fix = 'write webhook="https://host/path", or webhook=rn.secret("HOOK_URL") if the address is a secret'
    reader.reject("webhook", "the address must start with http:// or https://, and have no password", fix)
    return None


def _check_addresses(reader: OptionReader, name: str, addresses: tuple[str, ...]) -> tuple[str, ...]:
    for address in addresses:
        if not _ADDRESS.match(address):
            reader.reject(name, f"{quote_value(address)} is not an e-mail address", f'write {name}="ada@example.org"')
    return addresses


def _check_smtp(reader: OptionReader, smtp: str | None) -> str | None:
    match = _SMTP.match(smtp) if smtp is not None else None
    if smtp is not None and match is None:
        reader.reject("smtp", "`smtp` is not the address of a mail server", 'write smtp="smtp://user@host:25"')
    elif match is not None and match["password"] is not None:
        fix = 'leave it out of the address: password=rn.secret("SMTP_PASSWORD")'
        reader.reject("smtp", "the address has a password in it", fix)
    return smtp


def _check_password(reader: OptionReader, password: object) -> Secret | None:
    if password is None or isinstance(password, Secret):
        return password
    fix = 'write password=rn.secret("SMTP_PASSWORD")'
    reader.reject("password", "`password` is a secret, which must not be in a file", fix)
    return None


def _read_command(reader: OptionReader) -> str | None:
    command = reader.text("command")
    try:
        if command is not None:
            shlex.split(command)
    except ValueError as error:
        reader.reject("command", f"{quote_value(command)} can't be read: {str(error).lower()}", "close the quotes")
    return command
