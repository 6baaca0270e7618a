"""`runnel up`, `down` and `worker`: run a project as a service."""

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
from runnel.cli.output import command, open_lake, print_json, print_text, print_to_stderr, read_global_options

if TYPE_CHECKING:
    from types import FrameType

    from runnel.client.lake import Lake
    from runnel.project.instance_file import ServiceInstance
    from runnel.service.active_work import RunUnderWay

_DOWN_SECONDS = 120.0  # how long `down` waits after it interrupted everything
_ORPHAN_SECONDS = 60.0


@command()
@click.option("--branch", default="main", metavar="B", help="Branch whose streams and sources run; main by default.")
@click.option(
    "--workers",
    "number",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of workers.",
)
@click.option(
    "--parallel",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Concurrent runs per worker.",
)
@click.option("--host", default=None, metavar="HOST", help="Address to listen on, instead of `service.host`.")
@click.option(
    "--port",
    default=None,
    type=click.IntRange(1, 65_535),
    metavar="N",
    help="Port to listen on, instead of `service.port`.",
)
def up(branch: str, number: int, parallel: int, *, host: str | None, port: int | None, as_json: bool) -> None:
    """Start the service: REST API, schedules and workers, until Ctrl-C or `runnel down`."""
    from runnel.lake.catalog.database import format_time
    from runnel.project import instance_file
    from runnel.service.log_files import log_to_file
    from runnel.service.server.server_process import format_host, open_listener
    from runnel.service.server.tls import check_exposure

    addresses = {"service.host": host, "service.port": port}
    overrides = [f"{name}={value}" for name, value in addresses.items() if value is not None]
    with open_lake(overrides=overrides) as project_lake:
        settings = project_lake.settings
        project_lake.store.commit(branch)  # an unknown branch is reported at once
        check_exposure(settings)
        url = f"{settings.tls.scheme}://{format_host(settings.host)}:{settings.port}"
        instance = instance_file.ServiceInstance(
            os.getpid(), url, format_time(datetime.now(UTC)), instance_file.hash_catalog_url(settings.catalog)
        )
        with instance_file.announce_instance(settings.home, instance):
            open_listener(settings.host, settings.port).close()  # and so is a port in use
            log_to_file(settings.home / "logs" / "up.log", settings.secrets)
            path = _ensure_token(project_lake)
            ended_cleanly = _supervise(
                project_lake,
                url,
                branch,
                number,
                parallel,
                lambda: _print_greeting(project_lake, instance, str(path), as_json),
            )
    if not ended_cleanly:
        print_to_stderr("running work was interrupted and published nothing; the next `runnel up` runs it again")
    sys.exit(0 if ended_cleanly else 1)


@command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=None,
    metavar="SECONDS",
    help="Interrupt work that is still running after SECONDS; the next `runnel up` runs it again.",
)
@click.option("--now", is_flag=True, help="Interrupt running work at once, like --timeout 0.")
def down(timeout: float | None, now: bool, as_json: bool) -> None:
    """Stop the `runnel up` of this project after its running work has ended, however long that takes."""
    from runnel.cli.output import load_project_settings
    from runnel.project import instance_file

    folder = load_project_settings().home
    instance = instance_file.find_instance(folder)
    if instance is None:
        print_json({"stopped": None, "interrupted": []}) if as_json else print_text(
            "no service of this project is running"
        )
        return
    print_to_stderr(f"stopping process {instance.pid}{' now' if now else ' after its running work has ended'}")
    with open_lake() as project_lake:
        runs = _await_down(project_lake, instance, 0.0 if now else timeout)
    if as_json:
        print_json({"stopped": instance.pid, "interrupted": [run.json() for run in runs]})
        return
    for run in runs:
        print_text(
            f"interrupted, and queued again for the next `runnel up`: run {run.run} ({run.select or 'everything'})"
        )
    print_text("the service has stopped")


def _await_down(project_lake: "Lake", instance: "ServiceInstance", timeout: float | None) -> "list[RunUnderWay]":
    """Stop a `runnel up`, show what it waits for, and return the runs that were interrupted."""
    from runnel.errors import RunnelError, Unreachable
    from runnel.project import instance_file
    from runnel.service.active_work import list_interrupted_runs, list_runs_under_way

    db, folder, started_at, wake_event = (
        project_lake.store.db,
        project_lake.settings.home,
        time.monotonic(),
        threading.Event(),
    )
    runs: dict[str, RunUnderWay] = {}
    was_hurried = False

    def look() -> None:
        with suppress(RunnelError):  # the database does not answer
            for run in list_runs_under_way(db):
                if run.run not in runs:
                    runs[run.run] = run
                    print_to_stderr(f"waiting for {run.text}" if timeout != 0 else f"interrupting {run.text}")

    look()
    with suppress(ProcessLookupError):
        os.kill(instance.pid, signal.SIGTERM)
    while instance_file.find_instance(folder) is not None:
        waited = time.monotonic() - started_at
        if timeout is not None and waited >= timeout and not was_hurried:
            was_hurried = True
            with suppress(ProcessLookupError):
                os.kill(instance.pid, signal.SIGUSR1)
        if timeout is not None and waited > timeout + _DOWN_SECONDS:
            raise Unreachable("DOWN_SLOW", f"process {instance.pid} has not ended yet", fix="wait, or kill it")
        wake_event.wait(0.2)
        if not was_hurried:
            look()
    return list_interrupted_runs(db, list(runs.values()))


@command()
@click.option("--branch", default="main", metavar="B", help="Branch whose streams and sources run; main by default.")
@click.option(
    "--parallel", default=4, show_default=True, type=click.IntRange(min=1), metavar="N", help="Concurrent runs."
)
@click.option("--name", default=None, metavar="NAME", help="Name of the worker; generated by default.")
@click.option("--watched", is_flag=True, hidden=True, help="End when standard input closes.")
def worker(branch: str, parallel: int, name: str | None, watched: bool, as_json: bool) -> None:
    """Compute queued runs and streams as an additional worker of a lake, until Ctrl-C."""
    from runnel.service.log_files import log_to_file
    from runnel.service.worker.worker_process import WorkerProcess

    with open_lake(once=False) as project_lake:
        project_lake.store.commit(branch)
        log_to_file(project_lake.settings.home / "logs" / "worker.log", project_lake.settings.secrets)
        env, report = read_global_options().get("env"), _report
        worker_process = WorkerProcess(
            project_lake, os.environ, report, env=env, branch=branch, name=name, parallel=parallel
        )
        _handle_signals(worker_process.worker.stop)
        signal.signal(signal.SIGUSR1, lambda *_: worker_process.interrupt_runs())
        if watched:
            _stop_with_parent(worker_process.worker.stop, worker_process.interrupt_runs)
        elif as_json:
            print_json({"worker": worker_process.worker.name, "project": project_lake.settings.name, "branch": branch})
        else:
            print_to_stderr(
                f"worker {worker_process.worker.name} of {project_lake.settings.name} on {branch}; Ctrl-C stops it"
            )
        try:
            worker_process.run()
        finally:
            ended_cleanly = worker_process.end()
    _exit_process(0 if ended_cleanly else 1)


@command()
@click.option("--watched", is_flag=True, hidden=True, help="End when standard input closes.")
def service(watched: bool, as_json: bool) -> None:  # noqa: ARG001 - every command has --json
    """Serve the REST API and run schedules; `runnel up` starts it."""
    from runnel.service.log_files import log_to_file
    from runnel.service.server.server_process import ServerProcess

    with open_lake() as project_lake:
        log_to_file(project_lake.settings.home / "logs" / "service.log", project_lake.settings.secrets)
        server_process = ServerProcess(project_lake)
        _handle_signals(server_process.stop)
        if watched:
            _stop_with_parent(server_process.stop)
        server_process.run()
    _exit_process(0)


def _supervise(
    project_lake: "Lake", url: str, branch: str, number: int, parallel: int, greet: "Callable[[], None]"
) -> bool:
    from runnel.service.supervisor import ChildProcess, Supervisor, make_health_probe, make_heartbeat_reader

    def worker_command(name: str) -> list[str]:
        return [
            *_base_command(project_lake),
            "worker",
            "--watched",
            "--name",
            name,
            "--branch",
            branch,
            "--parallel",
            str(parallel),
        ]

    db = project_lake.store.db
    children = [
        ChildProcess(
            "service", lambda _: [*_base_command(project_lake), "service", "--watched"], make_health_probe(url)
        )
    ]
    children += [ChildProcess("worker", worker_command, make_heartbeat_reader(db)) for _ in range(number)]
    supervisor = Supervisor(children, db, _report)
    _handle_signals(supervisor.stop, supervisor.kill)
    signal.signal(signal.SIGUSR1, lambda *_: supervisor.interrupt_requested.set())
    greeter = threading.Thread(target=_greet_when_ready, args=(url, supervisor.stop, greet), daemon=True)
    greeter.start()
    supervisor.run()
    print_to_stderr("stopping after running work has ended; press Ctrl-C again to stop at once")
    return supervisor.end()


def _base_command(project_lake: "Lake") -> list[str]:
    """Return the command that starts Runnel on this project, with the global options and the address of this `up`."""
    options, settings = read_global_options(), project_lake.settings
    overrides = (
        *options.get("overrides", ()),
        f"service.host={settings.host}",
        f"service.port={settings.port}",
    )
    arguments = [
        sys.executable,
        "-c",
        "from runnel.cli.main import main; main()",
        "-C",
        str(settings.root),
    ]
    arguments += ["--env", options["env"]] if options.get("env") else []
    return arguments + [argument for override in overrides for argument in ("--set", override)]


def _greet_when_ready(url: str, stop: threading.Event, greet: "Callable[[], None]") -> None:
    from runnel.service.supervisor import make_health_probe

    check_answer = make_health_probe(url)
    while not stop.wait(0.05):
        if check_answer("") is not None:
            greet()
            return


def _print_greeting(project_lake: "Lake", instance: "ServiceInstance", token_path: str, as_json: bool) -> None:
    if as_json:
        print_json({"url": instance.url, "pid": instance.pid, "token_file": token_path})
        return
    print_to_stderr(f"{project_lake.settings.name} is up at {instance.url}; Spark is starting in the background")
    certificate = project_lake.settings.tls.certificate
    trust = f"--cacert {certificate} " if certificate is not None else ""
    command = f'curl {trust}-H "Authorization: Bearer $(cat {token_path})" {instance.url}/api/v1/status'
    print_to_stderr(f"log in with the token in {token_path}:\n  {command}")
    print_to_stderr("`runnel run` uses it, `runnel status` shows its state, Ctrl-C or `runnel down` stops it")


def _ensure_token(project_lake: "Lake") -> "os.PathLike[str]":
    """Return the path of the project's token, which is created at the first start."""
    from runnel.lake.control import tokens
    from runnel.project import instance_file

    folder, db = project_lake.settings.home, project_lake.store.db
    saved_token = instance_file.read_token(folder)
    if saved_token is not None and db.read(lambda connection: tokens.verify(connection, saved_token)) is not None:
        return folder / "token"
    return instance_file.save_token(folder, tokens.create(db, f"up-{os.urandom(4).hex()}", "admin"))


def _handle_signals(stop: threading.Event, kill: "Callable[[], None] | None" = None) -> None:
    """Stop gracefully at the first Ctrl-C or SIGTERM, and immediately at the second."""

    def heard(_number: int, _frame: "FrameType | None") -> None:
        if stop.is_set():
            if kill is not None:
                kill()
            os._exit(1)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)


def _stop_with_parent(stop: threading.Event, hurry: "Callable[[], None] | None" = None) -> None:
    """Stop when the parent process has ended, and interrupt running work after a while.

    Ctrl-C on a terminal is ignored here: the parent handles it and stops this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.read(0, 1):
            pass
        was_stopping = stop.is_set()
        stop.set()
        if hurry is not None and not was_stopping:
            time.sleep(_ORPHAN_SECONDS)  # without the parent nobody waits for running work, and nobody can interrupt it
            hurry()

    threading.Thread(target=watch, name="runnel parent", daemon=True).start()


def _exit_process(code: int) -> None:
    """Exit immediately: busy threads of libraries must not delay it."""
    from runnel.spark.session import stop_spark

    stop_spark()
    shutdown.run_hooks()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _report(text: str) -> None:
    with suppress(OSError):  # standard error is closed, or the disk is full: neither may stop the service
        print_to_stderr(f"{datetime.now():%H:%M:%S} {text}")
