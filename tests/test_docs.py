"""The docs say what the code does: every command, option, setting and variable is in them, and nothing else."""

import re
from pathlib import Path

import click
import pytest

from runnel.cli.main import _COMMANDS, runnel
from runnel.declare.settings import _DEFAULTS

ROOT = Path(__file__).parent.parent
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
SETTINGS = (ROOT / "docs" / "settings.md").read_text()


def line_of(name: str) -> str:
    found = [line for line in COMMANDS.splitlines() if line.startswith(f"| `runnel {name}")]
    exact = [line for line in found if re.match(rf"\| `runnel {name}[ `]", line)]
    assert exact, f"docs/commands.md does not have `runnel {name}`"
    return exact[0]


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_option_is_documented(name: str) -> None:
    line = line_of(name)
    command = runnel.get_command(click.Context(runnel), name)
    assert command is not None and command.help, name
    for option in command.params:
        if isinstance(option, click.Option) and option.name != "as_json":
            for word in option.opts:
                assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", line), (
                    f"`runnel {name} {word}` is not documented"
                )


def test_no_command_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `runnel ([a-z]+)", COMMANDS, re.MULTILINE)) == set(_COMMANDS)


def test_every_setting_is_documented() -> None:
    for section, keys in _DEFAULTS.items():
        assert f"[{section}]" in SETTINGS
        for key in keys:
            assert re.search(rf"^{key} = ", SETTINGS, re.MULTILINE), f"{section}.{key} is not documented"


def test_every_variable_is_documented() -> None:
    used = set()
    for path in (ROOT / "runnel").rglob("*.py"):
        used |= set(re.findall(r'"(RUNNEL_[A-Z]+)"', path.read_text()))
    assert used <= set(re.findall(r"`(RUNNEL_[A-Z]+)`", SETTINGS)), "a variable is not in docs/settings.md"


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_named_files_exist(page: str) -> None:
    """Pages for contributors name files from the root or from runnel/; a capital NAME stands for a new file."""
    for path in re.findall(r"(?<![\w./])[a-z_]+(?:/[a-z_0-9.]+)*/[a-z_0-9]+\.py\b", (ROOT / page).read_text()):
        assert (ROOT / path).exists() or (ROOT / "runnel" / path).exists(), f"{page} names {path}"


def test_every_package_and_module_is_in_the_architecture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = {line.split("`")[1]: line.rpartition(" | ")[2] for line in page.splitlines() if line.startswith("| `")}
    folders = {path.parent for path in (ROOT / "runnel").rglob("__init__.py")}
    for folder in sorted(folders - {ROOT / "runnel/lake/catalog/migrations"}):
        package = f"{folder.relative_to(ROOT / 'runnel')}/" if folder != ROOT / "runnel" else "runnel/"
        modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        assert set(re.findall(r"`(\w+)`", rows.get(package, ""))) == modules, f"docs/architecture.md: {package}"


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
