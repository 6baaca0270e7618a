"""`runnel validate`."""

import sys

import click

from runnel.cli.output import command, count, print_json, say, settings


@command()
def validate(as_json: bool) -> None:
    """Show all mistakes of a project at once."""
    from runnel.declare.loading.loader import load_flow
    from runnel.declare.loading.project_errors import ProjectMistakes

    found = settings()

    def start_spark() -> object:
        from runnel.project.spark_session import session

        return session(found, None if as_json else say)

    try:
        flow = load_flow(found, start_spark)
    except ProjectMistakes as mistakes:
        if not as_json:
            raise
        print_json({"tasks": None, "sources": None, "mistakes": [mistake.parts() for mistake in mistakes.all]})
        sys.exit(mistakes.exit_code)
    if as_json:
        numbers = {"tasks": len(flow.tasks), "sources": len(flow.sources), "schedules": len(flow.schedules)}
        print_json({**numbers, "mistakes": []})
        return
    parts = [count(len(flow.tasks), "task"), count(len(flow.sources), "source")]
    parts += [count(len(made), noun) for made, noun in ((flow.sinks, "sink"), (flow.schedules, "schedule")) if made]
    click.echo(f"{', '.join(parts)}: no mistakes")
    if flow.started_spark:
        click.echo(
            f"note: {flow.started_spark} needs Spark while it is imported, which makes each command start slower"
        )
