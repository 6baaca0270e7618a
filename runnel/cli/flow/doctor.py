"""`runnel doctor`."""

import sys
from typing import TYPE_CHECKING

from runnel.cli.output import command, format_count, load_project_settings, print_json, print_text
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.spark.doctor import DoctorFinding


@command()
def doctor(as_json: bool) -> None:
    """Check what is installed and reachable; Spark is started only if its master is a cluster."""
    from runnel.spark.doctor import diagnose_spark

    all_facts = [*diagnose_spark(), *_check_project()]
    if as_json:
        print_json(
            {
                "facts": [
                    {"name": entry.name, "state": entry.state, "what": entry.what, "fix": entry.fix}
                    for entry in all_facts
                ]
            }
        )
    else:
        width = max(len(entry.name) for entry in all_facts)
        for entry in all_facts:
            print_text(f"{entry.state:<4}  {entry.name:<{width}}  {entry.what}")
            if entry.fix and entry.state != "ok":
                print_text(f"      {'':<{width}}  fix: {entry.fix}")
    if any(entry.state == "fail" for entry in all_facts):
        sys.exit(1)


def _check_project() -> "list[DoctorFinding]":
    """Check the project and its lake, if the command is called in a project."""
    from runnel.lake.iceberg.file_io import free_bytes
    from runnel.lake.store import Store
    from runnel.project.home_folder import prepare_home
    from runnel.spark.doctor import DoctorFinding as fact

    try:
        project_settings = load_project_settings()
    except RunnelError as error:
        if error.code == "PROJECT_NOT_FOUND":
            return [fact("project", "warn", "not in a project", "cd into one, or `runnel init`")]
        return [fact("project", "fail", error.what, error.fix)]
    project_facts = [fact("project", "ok", f"{project_settings.name} in {project_settings.root}")]
    try:
        prepare_home(project_settings)
        store = Store.open(project_settings.catalog, project_settings.warehouse)
        catalog_url = store.db.url.render_as_string(hide_password=True)
        project_facts.append(
            fact("catalog", "ok", f"{catalog_url}, {format_count(len(store.state('main')), 'table')} on main")
        )
        free_space = free_bytes(project_settings.warehouse)
        is_low = free_space is not None and free_space < 2**30
        text = project_settings.warehouse + (f", {free_space / 2**30:.1f} GiB free" if free_space is not None else "")
        project_facts.append(fact("warehouse", "warn" if is_low else "ok", text, "free some space" if is_low else None))
        store.close()
    except RunnelError as error:
        project_facts.append(fact("catalog", "fail", error.what, error.fix))
    return [*project_facts, *_check_cluster(project_settings)]


def _check_cluster(settings: "Settings") -> "list[DoctorFinding]":
    """Check that executors start, have the packages of this process, and see its warehouse."""
    from runnel.spark.doctor import DoctorFinding as fact
    from runnel.spark.jvm.command_line import is_local

    if is_local(settings.master):
        return []
    from runnel.project.spark_session import open_spark_session
    from runnel.spark.session import stop_spark

    try:
        open_spark_session(settings)
    except RunnelError as error:
        return [fact("cluster", "fail", error.what, error.fix)]
    finally:
        stop_spark()
    what = f"{settings.master}: an executor has the Python and the packages of this process, and sees the warehouse"
    if "spark.authenticate.secret" not in settings.conf:
        fix = "set spark.authenticate.secret here and on the cluster: otherwise everybody on its network can use it"
        return [fact("cluster", "warn", f"{what}; connections are not protected", fix)]
    return [fact("cluster", "ok", what)]
