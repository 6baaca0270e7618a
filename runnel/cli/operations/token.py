"""`runnel token`: create, list, rotate and revoke the tokens that give access to the service."""

from typing import TYPE_CHECKING

import click

from runnel.cli.output import format_table, format_time, open_lake, print_json, print_text, print_to_stderr
from runnel.errors import did_you_mean

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.tokens import Token

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_EXPIRY = "a duration, a day or a time in UTC, such as 30d or 2027-01-31, or never"


@click.group("token", context_settings={"help_option_names": ["-h", "--help"]})
def token() -> None:
    """Create, list, rotate and revoke tokens for the service."""


@token.command()
@click.argument("name")
@click.option("--scope", default="read", show_default=True, metavar="SCOPE", help="push, read, write or admin.")
@click.option("--tables", multiple=True, metavar="PATTERN", help="Only these tables, such as 'dws.*'; for scope read.")
@click.option("--branch", default=None, metavar="B", help="Only this branch; for scope read.")
@click.option("--source", "sources", multiple=True, metavar="TABLE", help="Push events only to it; for scope push.")
@click.option("--expires", default="365 days", show_default=True, metavar="WHEN", help=f"When it expires: {_EXPIRY}.")
@_AS_JSON
def create(
    name: str,
    scope: str,
    tables: tuple[str, ...],
    branch: str | None,
    sources: tuple[str, ...],
    expires: str,
    as_json: bool,
) -> None:
    """Create a token called NAME and print its text, which is never shown again."""
    limits = {"tables": _split_names(tables), "sources": _split_names(sources)}
    with open_lake() as project_lake:
        new_token = project_lake.create_token(name, scope, branch=branch, expires=expires, **limits)
        _warn_of_unknown_sources(project_lake, new_token.token.sources or ())
    if as_json:
        print_json(new_token.json())
        return
    may = f"token {name} may {new_token.token.permissions_text}, {_describe_expiry(new_token.token)}"
    print_to_stderr(f"{may}; it is shown only this once:")
    print_text(new_token.secret)


def _describe_expiry(entry: "Token") -> str:
    return f"until {format_time(entry.expires_at)} UTC" if entry.expires_at is not None else "and never expires"


def _split_names(texts: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names in the values of an option that may be repeated, or have several; None if there is none."""
    return tuple(name for text in texts for name in text.replace(",", " ").split()) or None


def _warn_of_unknown_sources(project_lake: "Lake", sources: tuple[str, ...]) -> None:
    from runnel.lake.control import declarations

    declared_sources = project_lake.store.db.read(declarations.read_sources) if sources else None
    for source in sources:
        if declared_sources is not None and source not in declared_sources:
            hint = did_you_mean(source, declared_sources)
            print_to_stderr(f"warning: the project declares no source `{source}` yet{hint}")


@token.command("list")
@_AS_JSON
def list_(as_json: bool) -> None:
    """List all tokens, without their texts."""
    with open_lake() as project_lake:
        entries = project_lake.tokens()
    if as_json:
        print_json([entry.json() for entry in entries])
    elif not entries:
        print_text("no tokens yet; `runnel token create NAME` creates one")
    else:
        rows = [
            [
                entry.name,
                entry.permissions_text,
                *(format_time(moment or "") for moment in (entry.made_at, entry.last_used_at)),
                format_time(entry.expires_at) if entry.expires_at is not None else "never",
                format_time(entry.revoked_at or ""),
            ]
            for entry in entries
        ]
        titles = ["token", "may", "created (UTC)", "last used (UTC)", "expires (UTC)", "revoked (UTC)"]
        print_text(format_table(titles, rows))


@token.command()
@click.argument("name")
@click.option(
    "--grace", default="0s", show_default=True, metavar="TIME", help="How long the previous text is accepted."
)
@click.option("--expires", default=None, metavar="WHEN", help=f"When it expires from now on: {_EXPIRY}.")
@_AS_JSON
def rotate(name: str, grace: str, expires: str | None, as_json: bool) -> None:
    """Give the token NAME a new text and print it; it is never shown again."""
    with open_lake() as project_lake:
        rotated = project_lake.rotate_token(name, grace=grace, expires=expires)
    if as_json:
        print_json(rotated.json())
        return
    previous_until = format_time(rotated.token.previous_until or "")
    print_to_stderr(
        f"the previous text of {name} is accepted until {previous_until} UTC; the new one is shown only now:"
    )
    print_text(rotated.secret)


@token.command()
@click.argument("name")
@_AS_JSON
def revoke(name: str, as_json: bool) -> None:
    """Revoke the token NAME; the service refuses it from then on."""
    with open_lake() as project_lake:
        revoked = project_lake.revoke_token(name)
    print_json(revoked.json()) if as_json else print_text(f"token {name} is revoked")
