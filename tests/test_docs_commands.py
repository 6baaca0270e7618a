"""Every command line in the docs is accepted as it is typed; it is parsed, and not executed."""

import re
import shlex
from pathlib import Path

import click
import pytest

from runnel.cli.main import runnel
from runnel.errors import RunnelError

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINE = re.compile(r"^\s*(?:\$ )?(runnel (?![a-z]+ = ).+)$")
_INLINE = re.compile(r"`(runnel [^`]+)`")
_OPTIONAL = re.compile(r"[\[\]|…]|\.\.\.| / |[A-Za-z]/[a-z]+ ")  # `[TABLE]`, `pause/resume`: a form, no command
_PLACEHOLDERS = {"N": "1", "SECONDS": "1", "PORT": "8470", "HOURS": "1"}


def commands_of(page: Path) -> list[tuple[str, bool]]:
    """Return the command lines of a page, and whether each is typed as it is.

    One within a sentence may only name a command, without its arguments; forms such as `runnel log [TABLE]` are not
    commands.
    """
    commands, is_fenced = [], False
    for line in page.read_text().splitlines():
        is_fenced ^= line.startswith("```")
        match = _LINE.match(line)
        if match and (is_fenced or line.startswith("    ")):
            commands.append((match[1], True))
        elif not is_fenced:
            commands += [(text, False) for text in _INLINE.findall(line) if not _OPTIONAL.search(text)]
    return commands


def parse(text: str) -> None:
    """Parse a command line as the shell and click do; raise if it would be refused."""
    words = shlex.split(re.split(r"\s(?:&&|;|>|\||2>)\s", text)[0], comments=True)
    words = [_PLACEHOLDERS.get(word, word) for word in words[1:]]
    command: click.Command = runnel
    context = runnel.make_context("runnel", words)
    while isinstance(command, click.Group):
        arguments = [*context._protected_args, *context.args]
        if not arguments and command.invoke_without_command:
            return
        name, subcommand, arguments = command.resolve_command(context, arguments)
        assert subcommand is not None
        command, context = subcommand, subcommand.make_context(name, arguments, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_accepted_as_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = []
    for text, is_typed in commands_of(page):
        try:
            parse(text)
        except (click.MissingParameter, click.BadOptionUsage) as error:
            if is_typed:
                refused.append(f"{text}: {error.message}")
        except (click.ClickException, RunnelError, ValueError) as error:
            refused.append(f"{text}: {getattr(error, 'message', None) or error}")
        except click.exceptions.Exit:
            pass  # --help, --version
    assert refused == []


@pytest.mark.parametrize("text", ["runnel plan ods.clicks", "runnel run --brnach dev", "runnel nothing", "runnel why"])
def test_commands_that_would_be_refused(text: str) -> None:
    with pytest.raises((click.ClickException, RunnelError)):
        parse(text)
