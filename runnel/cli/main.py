"""Run the command `runnel`: find the subcommand, and turn every failure into a clear message and an exit code."""

import atexit
import errno
import gc
import json
import logging
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from runnel import shutdown
from runnel.errors import Cancelled, RunnelError, find_disk_full
from runnel.private_files import create_private_file, create_private_folder
from runnel.thread_interrupt import list_abandoned_threads
from runnel.visible_text import show_invisible

_COMMANDS = {
    # name: (module, help text in `runnel --help`)
    "init": ("flow.init", "Create a project that is ready to run."),
    "validate": ("flow.validate", "Show all mistakes of a project."),
    "doctor": ("flow.doctor", "Check what is installed and reachable."),
    "plan": ("flow.run", "Show what would be computed and why."),
    "run": ("flow.run", "Plan, compute, check, publish."),
    "backfill": ("flow.backfill", "Compute the slices of some days again."),
    "backfills": ("flow.backfill", "List backfills; pause, resume or cancel one."),
    "up": ("flow.up", "Start the service: REST API, schedules, workers."),
    "down": ("flow.up", "Stop what `runnel up` started."),
    "status": ("flow.status", "Show the state of the service, streams and sources."),
    "alarms": ("operations.alarms", "List alarms; acknowledge, mute or dismiss one."),
    "worker": ("flow.up", "Start an additional worker of a lake."),
    "stream": ("flow.status", "Repair streams: restart one from the beginning."),
    "sinks": ("flow.sinks", "List sinks; deliver to them now."),
    "schema": ("lake.schema", "Print the schema of files, ready to paste."),
    "load": ("lake.load", "Add data by hand: CSV, JSON lines, Parquet."),
    "put": ("lake.files", "Put files into a file table."),
    "get": ("lake.files", "Get files out of a file table."),
    "ls": ("lake.files", "List the files of a file table."),
    "rm": ("lake.files", "Remove files from a file table."),
    "query": ("lake.query", "Query the lake in Spark SQL."),
    "tables": ("lake.tables", "List the tables."),
    "table": ("lake.tables", "Show one table: schema, versions, size."),
    "log": ("lake.log", "Show the history of commits."),
    "show": ("lake.log", "Show one commit."),
    "why": ("flow.why", "Show the provenance of a table."),
    "lineage": ("flow.lineage", "Show the graph around a table."),
    "replay": ("flow.replay", "Compute a commit again, and compare."),
    "runs": ("flow.runs", "List runs, or show one."),
    "logs": ("flow.runs", "Print the log of a run."),
    "cancel": ("flow.cancel_retry", "Stop a queued or running run."),
    "retry": ("flow.cancel_retry", "Repeat a run."),
    "schedules": ("flow.schedules", "List schedules; pause or resume one."),
    "diff": ("lake.diff", "Compare two versions of the lake."),
    "branch": ("lake.branch", "List, create or delete branches."),
    "tag": ("lake.branch", "List, create or delete tags."),
    "merge": ("lake.merge", "Merge a branch."),
    "revert": ("lake.merge", "Undo a commit with a new one."),
    "rewind": ("lake.rewind", "Read a source again from an earlier position."),
    "quarantine": ("lake.quarantine", "Show rows that were set aside, release or discard them."),
    "token": ("operations.token", "Create, list and revoke tokens for the service."),
    "gc": ("lake.upkeep", "Remove files that no retained version needs."),
    "compact": ("lake.upkeep", "Rewrite small files into large ones."),
    "erase": ("lake.upkeep", "Remove rows from all retained versions."),
    "fsck": ("lake.upkeep", "Check the lake; repair a moved one."),
}
_HIDDEN = {"service": "flow.up"}  # started by other commands


class LazyCommandGroup(click.Group):
    """Subcommands whose modules are imported only when they are called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return all names, in the order in which a newcomer needs them."""
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand."""
        module = _HIDDEN.get(cmd_name) or _COMMANDS.get(cmd_name, ("",))[0]
        if not module:
            return None
        command: click.Command = getattr(import_module(f"runnel.cli.{module}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand, or fail with the nearest one."""
        if args and args[0] not in (*_COMMANDS, *_HIDDEN) and not args[0].startswith("-"):
            from runnel.errors import Mistake, did_you_mean

            what = f"there is no command `{args[0]}`" + did_you_mean(args[0], _COMMANDS)
            raise Mistake("COMMAND_UNKNOWN", what, fix="`runnel --help` lists them")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(cls=LazyCommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-C",
    "--project",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Folder of the project; by default the current folder or one above it.",
)
@click.option("--env", default=None, metavar="NAME", help="Apply runnel.NAME.toml over runnel.toml.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting (section.key) or a task parameter.",
)
@click.version_option(package_name="runnel", message="runnel %(version)s")
@click.pass_context
def runnel(ctx: click.Context, project: Path | None, env: str | None, overrides: tuple[str, ...]) -> None:
    """Data flows on a versioned lake."""  # noqa: D401 - the first line of --help
    ctx.obj = {"project": project, "env": env, "overrides": overrides}


def main() -> None:
    """Run the command line and exit; without waiting if a task is left that does not stop."""
    try:
        _run_command()
    except SystemExit as exit_request:
        if list_abandoned_threads():
            _exit_at_once(exit_request.code if isinstance(exit_request.code, int) else int(bool(exit_request.code)))
        raise


def _exit_at_once(code: int) -> NoReturn:
    """Exit without waiting for threads of the user's code, as Python otherwise does."""
    if (session := sys.modules.get("runnel.spark.session")) is not None:
        session.stop()
    shutdown.run_hooks()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run_command() -> None:
    gc.set_threshold(50_000)  # imported objects are never freed; collecting often takes a tenth of a short run
    atexit.register(_skip_last_collection)
    logging.getLogger().addHandler(logging.NullHandler())  # otherwise libraries print their stack traces
    try:
        runnel(standalone_mode=False, prog_name="runnel")
    except click.exceptions.Exit as exit_request:
        sys.exit(exit_request.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _exit_with_error(Cancelled())
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "runnel"
        _exit_with_error(RunnelError("USAGE", error.format_message(), fix=f"see `{command} --help`"), exit_code=2)
    except RunnelError as error:
        _exit_with_error(error)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output has closed it, as `| head` does
        sys.exit(0)
    except Exception as error:  # the last resort: no user sees a stack trace
        _exit_with_error(_describe_unexpected(error))


def _skip_last_collection() -> None:
    """Let Python end without collecting everything once more, which takes a fifth of a short run.

    DuckDB prints a warning about each of its objects that is not collected, so the collection stays if it is loaded.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def _exit_with_error(error: RunnelError, exit_code: int | None = None) -> NoReturn:
    if "--json" in sys.argv[1:]:
        click.echo(json.dumps({"error": error.to_json()}))
    else:
        click.echo(show_invisible(str(error)), err=True)
    sys.exit(exit_code or error.exit_code)


def _describe_unexpected(error: Exception) -> RunnelError:
    if (no_space_error := find_disk_full(error)) is not None:
        return no_space_error
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        what = f"permission denied: {error.filename or error}"
        return RunnelError("NOT_ALLOWED", what, fix="check the permissions of that file or folder")
    path = _write_trace(error)
    what = f"unexpected {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return RunnelError("INTERNAL", what, fix=f"this is a defect of Runnel; the trace is in {path}")


def _write_trace(error: Exception) -> Path:
    """Append the stack trace to a log file and return its path."""
    import tempfile

    folder = Path.cwd() / ".runnel" / "logs"
    if not folder.parent.is_dir():
        folder = Path(tempfile.gettempdir())
    create_private_folder(folder)
    path = folder / "runnel-error.log"
    create_private_file(path)
    with path.open("a", encoding="utf-8") as log:
        log.write("".join(traceback.format_exception(error)) + "\n")
    return path
