"""`runnel validate`."""

import sys
from typing import TYPE_CHECKING

from runnel.cli.output import command, format_count, load_project_settings, print_json, print_text, print_to_stderr

if TYPE_CHECKING:
    from runnel.declare.model.endpoints import Files


@command()
def validate(as_json: bool) -> None:
    """Show all mistakes of a project at once."""
    from runnel.declare.loading.loader import load_flow
    from runnel.declare.loading.project_errors import ProjectMistakes
    from runnel.plan.selection import find_schedule_mistakes

    project_settings = load_project_settings()

    def start_spark() -> object:
        from runnel.project.spark_session import open_spark_session

        return open_spark_session(project_settings, None if as_json else print_to_stderr)

    def suggest_schema(files: "Files") -> str | None:
        from runnel.connect.ingest.schema_suggestion import suggest_schema

        return suggest_schema(project_settings.root, files)

    try:
        flow = load_flow(project_settings, start_spark, suggest_schema)
        if schedule_mistakes := find_schedule_mistakes(flow):
            raise ProjectMistakes(schedule_mistakes)
    except ProjectMistakes as mistakes:
        if not as_json:
            raise
        print_json({"tasks": None, "sources": None, "mistakes": [mistake.to_json() for mistake in mistakes.all]})
        sys.exit(mistakes.exit_code)
    if as_json:
        numbers = {"tasks": len(flow.tasks), "sources": len(flow.sources), "schedules": len(flow.schedules)}
        print_json({**numbers, "mistakes": []})
        return
    parts = [format_count(len(flow.tasks), "task"), format_count(len(flow.sources), "source")]
    parts += [
        format_count(len(declarations), noun)
        for declarations, noun in ((flow.sinks, "sink"), (flow.schedules, "schedule"))
        if declarations
    ]
    print_text(f"{', '.join(parts)}: no mistakes")
    if flow.started_spark:
        print_text(
            f"note: {flow.started_spark} needs Spark while it is imported, which makes each command start slower"
        )
