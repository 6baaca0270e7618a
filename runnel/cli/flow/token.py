"""`runnel token`: who may ask the service."""

import click

from runnel.cli.output import grid, lake, print_json, say, when

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group("token", context_settings={"help_option_names": ["-h", "--help"]})
def token() -> None:
    """Make, list and revoke tokens that open the service."""


@token.command()
@click.argument("name")
@click.option("--scope", default="read", show_default=True, metavar="SCOPE", help="read, write or admin.")
@click.option("--tables", multiple=True, metavar="PATTERN", help="Only these tables, such as 'dws.*'; for scope read.")
@click.option("--branch", default=None, metavar="B", help="Only this branch; for scope read.")
@_AS_JSON
def create(name: str, scope: str, tables: tuple[str, ...], branch: str | None, as_json: bool) -> None:
    """Make a token called NAME, and print its text, which is never shown again."""
    from runnel.lake.control import tokens

    wanted = tuple(one for text in tables for one in text.replace(",", " ").split())
    with lake() as opened:
        db = opened.store.db
        secret = tokens.create(db, name, scope, tables=wanted or None, branch=branch)
        made = db.read(lambda connection: tokens.find(connection, name))
    if as_json:
        print_json({**made.json(), "secret": secret})
        return
    say(f"token {name} may {made.told}; this is the only time that it is shown:")
    click.echo(secret)


@token.command("list")
@_AS_JSON
def list_(as_json: bool) -> None:
    """List all tokens, without their texts."""
    from runnel.lake.control import tokens

    with lake() as opened:
        found = opened.store.db.read(tokens.tokens)
    if as_json:
        print_json([one.json() for one in found])
    elif not found:
        click.echo("no tokens yet; `runnel token create NAME` makes one")
    else:
        rows = [[one.name, one.told, when(one.made_at), when(one.revoked_at or "")] for one in found]
        click.echo(grid(["token", "may", "made (UTC)", "revoked (UTC)"], rows))


@token.command()
@click.argument("name")
@_AS_JSON
def revoke(name: str, as_json: bool) -> None:
    """Let the token NAME open nothing any more, from now on."""
    from runnel.lake.control import tokens

    with lake() as opened:
        gone = tokens.revoke(opened.store.db, name)
    print_json(gone.json()) if as_json else click.echo(f"token {name} is revoked")
