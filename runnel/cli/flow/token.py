"""`runnel token`: create, list and revoke the tokens that give access to the service."""

import click

from runnel.cli.output import format_table, format_time, open_lake, print_json, print_to_stderr

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group("token", context_settings={"help_option_names": ["-h", "--help"]})
def token() -> None:
    """Create, list and revoke tokens for the service."""


@token.command()
@click.argument("name")
@click.option("--scope", default="read", show_default=True, metavar="SCOPE", help="read, write or admin.")
@click.option("--tables", multiple=True, metavar="PATTERN", help="Only these tables, such as 'dws.*'; for scope read.")
@click.option("--branch", default=None, metavar="B", help="Only this branch; for scope read.")
@_AS_JSON
def create(name: str, scope: str, tables: tuple[str, ...], branch: str | None, as_json: bool) -> None:
    """Create a token called NAME and print its text, which is never shown again."""
    from runnel.lake.control import tokens

    patterns = tuple(pattern for text in tables for pattern in text.replace(",", " ").split())
    with open_lake() as project_lake:
        db = project_lake.store.db
        secret = tokens.create(db, name, scope, tables=patterns or None, branch=branch)
        created = db.read(lambda connection: tokens.find(connection, name))
    if as_json:
        print_json({**created.json(), "secret": secret})
        return
    print_to_stderr(f"token {name} may {created.permissions_text}; it is shown only this once:")
    click.echo(secret)


@token.command("list")
@_AS_JSON
def list_(as_json: bool) -> None:
    """List all tokens, without their texts."""
    from runnel.lake.control import tokens

    with open_lake() as project_lake:
        entries = project_lake.store.db.read(tokens.list_tokens)
    if as_json:
        print_json([entry.json() for entry in entries])
    elif not entries:
        click.echo("no tokens yet; `runnel token create NAME` creates one")
    else:
        rows = [
            [entry.name, entry.permissions_text, format_time(entry.made_at), format_time(entry.revoked_at or "")]
            for entry in entries
        ]
        click.echo(format_table(["token", "may", "created (UTC)", "revoked (UTC)"], rows))


@token.command()
@click.argument("name")
@_AS_JSON
def revoke(name: str, as_json: bool) -> None:
    """Revoke the token NAME; the service refuses it from then on."""
    from runnel.lake.control import tokens

    with open_lake() as project_lake:
        revoked = tokens.revoke(project_lake.store.db, name)
    print_json(revoked.json()) if as_json else click.echo(f"token {name} is revoked")
