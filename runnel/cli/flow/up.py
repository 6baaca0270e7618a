"""`runnel up`, `down` and `worker`: a project as a running platform."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from runnel import shutdown
from runnel.cli.output import chosen, command, lake, print_json, say

if TYPE_CHECKING:
    from types import FrameType

    from runnel.client.lake import Lake
    from runnel.service.active_work import RunUnderWay
    from runnel.service.instance_file import Home

_DOWN_SECONDS = 120.0  # after everything was interrupted
_ORPHAN_SECONDS = 60.0


@command()
@click.option("--branch", default="main", metavar="B", help="Whose streams and sources; main by default.")
@click.option(
    "--workers",
    "number",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="How many workers.",
)
@click.option(
    "--parallel",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Runs at a time, per worker.",
)
def up(branch: str, number: int, parallel: int, as_json: bool) -> None:
    """Answer, schedule and compute, until Ctrl-C or `runnel down`."""
    from runnel.lake.catalog.database import stamp
    from runnel.service import instance_file
    from runnel.service.log_files import write_to
    from runnel.service.server.server_process import listening

    with lake() as opened:
        settings = opened.settings
        opened.store.commit(branch)  # one that is none is told at once
        url = f"http://{settings.host}:{settings.port}"
        here = instance_file.Home(
            os.getpid(), url, stamp(datetime.now(UTC)), instance_file.catalog_of(settings.catalog)
        )
        with instance_file.lived_in(settings.home, here):
            listening(settings.host, settings.port).close()  # so is a port that somebody else has
            write_to(settings.home / "logs" / "up.log")
            path = _token(opened)
            is_whole = _supervise(
                opened, url, branch, number, parallel, lambda: _greet(opened, here, str(path), as_json)
            )
    if not is_whole:
        say("something was interrupted; nothing of it was published, and the next `runnel up` takes it up")
    sys.exit(0 if is_whole else 1)


@command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=None,
    metavar="SECONDS",
    help="Interrupt what is still under way then; the next `runnel up` runs it again.",
)
@click.option("--now", is_flag=True, help="Interrupt what is under way at once, as --timeout 0 does.")
def down(timeout: float | None, now: bool, as_json: bool) -> None:
    """Stop the `runnel up` of this project, after what is under way, however long that takes."""
    from runnel.cli.output import settings
    from runnel.service import instance_file

    folder = settings().home
    found = instance_file.found(folder)
    if found is None:
        print_json({"stopped": None, "interrupted": []}) if as_json else click.echo("nothing is up here")
        return
    say(f"stopping process {found.pid}{' now' if now else ' after what is under way'}")
    with lake() as opened:
        runs = _await_down(opened, found, 0.0 if now else timeout)
    if as_json:
        print_json({"stopped": found.pid, "interrupted": [run.json() for run in runs]})
        return
    for run in runs:
        click.echo(
            f"interrupted, and queued again for the next `runnel up`: run {run.run} ({run.select or 'everything'})"
        )
    click.echo("it is down")


def _await_down(opened: "Lake", instance: "Home", timeout: float | None) -> "list[RunUnderWay]":
    """Stop a `runnel up`, show what it waits for, and return the runs that were interrupted."""
    from runnel.errors import RunnelError, Unreachable
    from runnel.service import instance_file
    from runnel.service.active_work import interrupted, runs_under_way

    db, folder, begun, pause = opened.store.db, opened.settings.home, time.monotonic(), threading.Event()
    runs: dict[str, RunUnderWay] = {}
    is_hurried = False

    def look() -> None:
        with suppress(RunnelError):  # the database is away
            for run in runs_under_way(db):
                if run.run not in runs:
                    runs[run.run] = run
                    say(f"waiting for {run.text}" if timeout != 0 else f"interrupting {run.text}")

    look()
    with suppress(ProcessLookupError):
        os.kill(instance.pid, signal.SIGTERM)
    while instance_file.found(folder) is not None:
        waited = time.monotonic() - begun
        if timeout is not None and waited >= timeout and not is_hurried:
            is_hurried = True
            with suppress(ProcessLookupError):
                os.kill(instance.pid, signal.SIGUSR1)
        if timeout is not None and waited > timeout + _DOWN_SECONDS:
            raise Unreachable("DOWN_SLOW", f"process {instance.pid} has not ended yet", fix="wait, or kill it")
        pause.wait(0.2)
        if not is_hurried:
            look()
    return interrupted(db, list(runs.values()))


@command()
@click.option("--branch", default="main", metavar="B", help="Whose streams and sources; main by default.")
@click.option(
    "--parallel", default=4, show_default=True, type=click.IntRange(min=1), metavar="N", help="Runs at a time."
)
@click.option("--name", default=None, metavar="NAME", help="What it is called; made up by default.")
@click.option("--watched", is_flag=True, hidden=True, help="End when standard input closes.")
def worker(branch: str, parallel: int, name: str | None, watched: bool, as_json: bool) -> None:
    """Compute what is queued and keep streams going, as one more worker of a lake, until Ctrl-C."""
    from runnel.service.log_files import write_to
    from runnel.service.worker.worker_process import Working

    with lake() as opened:
        opened.once = False
        opened.store.commit(branch)
        write_to(opened.settings.home / "logs" / "worker.log")
        env, tell = chosen().get("env"), _tell
        working = Working(opened, os.environ, tell, env=env, branch=branch, name=name, parallel=parallel)
        _heed(working.worker.stop)
        signal.signal(signal.SIGUSR1, lambda number, frame: working.hurry())
        if watched:
            _end_with_parent(working.worker.stop, working.hurry)
        elif as_json:
            print_json({"worker": working.worker.name, "project": opened.settings.name, "branch": branch})
        else:
            say(f"worker {working.worker.name} of {opened.settings.name} on {branch}; Ctrl-C stops")
        try:
            working.run()
        finally:
            is_whole = working.end()
    _leave(0 if is_whole else 1)


@command()
@click.option("--watched", is_flag=True, hidden=True, help="End when standard input closes.")
def service(watched: bool, as_json: bool) -> None:
    """Answer and schedule; `runnel up` starts it."""
    from runnel.service.log_files import write_to
    from runnel.service.server.server_process import Serving

    with lake() as opened:
        write_to(opened.settings.home / "logs" / "service.log")
        serving = Serving(opened)
        _heed(serving.stop)
        if watched:
            _end_with_parent(serving.stop)
        serving.run()
    _leave(0)


def _supervise(opened: "Lake", url: str, branch: str, number: int, parallel: int, greet: "Callable[[], None]") -> bool:
    from runnel.service.supervisor import Child, Supervisor, answers, beats

    def worker_command(name: str) -> list[str]:
        return [
            *_runnel(opened),
            "worker",
            "--watched",
            "--name",
            name,
            "--branch",
            branch,
            "--parallel",
            str(parallel),
        ]

    db = opened.store.db
    children = [Child("service", lambda name: [*_runnel(opened), "service", "--watched"], answers(url))]
    children += [Child("worker", worker_command, beats(db)) for _ in range(number)]
    supervisor = Supervisor(children, db, _tell)
    _heed(supervisor.stop, supervisor.kill)
    signal.signal(signal.SIGUSR1, lambda number, frame: supervisor.hurry.set())
    greeted = threading.Thread(target=_when_ready, args=(url, supervisor.stop, greet), daemon=True)
    greeted.start()
    supervisor.run()
    say("stopping after what is under way; Ctrl-C again stops at once")
    return supervisor.end()


def _runnel(opened: "Lake") -> list[str]:
    """Return the command that starts this Runnel on this project, with what was given before the subcommand."""
    given = chosen()
    words = [sys.executable, "-c", "from runnel.cli.main import main; main()", "-C", str(opened.settings.root)]
    words += ["--env", given["env"]] if given.get("env") else []
    return words + [word for one in given.get("overrides", ()) for word in ("--set", one)]


def _when_ready(url: str, stop: threading.Event, greet: "Callable[[], None]") -> None:
    from runnel.service.supervisor import answers

    sign = answers(url)
    while not stop.wait(0.05):
        if sign("") is not None:
            greet()
            return


def _greet(opened: "Lake", here: "Home", token: str, as_json: bool) -> None:
    if as_json:
        print_json({"url": here.url, "pid": here.pid, "token_file": token})
        return
    say(f"{opened.settings.name} is up at {here.url}; Spark warms up behind it")
    say(f'log in with the token in {token}:\n  curl -H "Authorization: Bearer $(cat {token})" {here.url}/api/v1/status')
    say("`runnel run` computes there, `runnel status` says how it is, Ctrl-C or `runnel down` stops it")


def _token(opened: "Lake") -> "os.PathLike[str]":
    """Return where the token of this project is, made at the first start."""
    from runnel.lake.control import tokens
    from runnel.service import instance_file

    folder, db = opened.settings.home, opened.store.db
    known = instance_file.token(folder)
    if known is not None and db.read(lambda connection: tokens.verify(connection, known)) is not None:
        return folder / "token"
    return instance_file.keep_token(folder, tokens.create(db, f"up-{os.urandom(4).hex()}", "admin"))


def _heed(stop: threading.Event, at_once: "Callable[[], None] | None" = None) -> None:
    """Stop in order at the first Ctrl-C or SIGTERM, and at once at the second."""

    def heard(number: int, frame: "FrameType | None") -> None:
        if stop.is_set():
            if at_once is not None:
                at_once()
            os._exit(1)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)


def _end_with_parent(stop: threading.Event, hurry: "Callable[[], None] | None" = None) -> None:
    """Stop when whoever started this process is gone, in a hurry after a while; Ctrl-C on a terminal is for the parent.

    The parent tells us of it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.read(0, 1):
            pass
        was_told = stop.is_set()
        stop.set()
        if hurry is not None and not was_told:
            time.sleep(_ORPHAN_SECONDS)  # nobody waits for what is under way, and nobody could interrupt it
            hurry()

    threading.Thread(target=watch, name="runnel parent", daemon=True).start()


def _leave(code: int) -> None:
    """End the process now: threads of libraries that are still at something must not hold it up."""
    from runnel.spark.session import stop

    stop()
    shutdown.say()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell(text: str) -> None:
    with suppress(OSError):  # nobody listens any more, or the disk is full: neither may end what goes on
        say(f"{datetime.now():%H:%M:%S} {text}")
