"""The command `cdc-pipeline`."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
import dagster as dg
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from cdc_pipeline.assets.follower import NEW_CODE
from cdc_pipeline.cli import doctor as checks
from cdc_pipeline.cli.declared import (
    DeclaredPipeline,
    capture_pipeline,
    lake_pipeline_name,
    project_pipeline,
    readable_lake,
)
from cdc_pipeline.cli.history import history_lines, message_lines, message_value, similar_tables, table_history
from cdc_pipeline.cli.output import json_default, printable, say
from cdc_pipeline.cli.pages import page_titles, read_page
from cdc_pipeline.cli.runs import FinishedRun, as_commands, ingest, require_success, run_job
from cdc_pipeline.cli.status import open_metrics, read_status, status_lines, table_lines
from cdc_pipeline.errors import CdcError, DeclarationError
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.faults import to_lake_error
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths, first_line
from cdc_pipeline.spark.java import JavaError

_DEFAULT_NAME = "captures"
_STARTED_IN = Path.cwd()
_FILE = click.Path(path_type=Path, resolve_path=True)  # before a project's folder becomes the working directory
_PROJECT_REMEDY = "Run this command in the folder of a Dagster project, and correct what `dg check defs` reports"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Canal-JSON change topics to mirror tables in Delta Lake.

    A pipeline is the one that the Dagster project of the working directory declares (--project names another folder,
    PIPELINE one of several), or is given by --captures and --lake.
    """


def main() -> None:
    """The entry point: errors become one line and exit code 1."""
    for kind in (dg.BetaWarning, dg.PreviewWarning):  # of Dagster's own classes
        warnings.filterwarnings("ignore", category=kind)
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: a run releases its lock and is reported as failed
        signal.signal(number, signal.default_int_handler)
    try:
        cli(standalone_mode=False)
    except (CdcError, JavaError) as error:
        _print_error(str(error))
    except (OSError, dg.DagsterError, PySparkException, Py4JError, DeltaError) as error:
        _print_error(str(to_lake_error(error) or f"{type(error).__name__}: {first_line(error)}"))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)


def _print_error(text: str) -> None:
    say(f"error: {as_commands(text)}", fg="red", err=True)
    sys.exit(1)


def _declared(captures: str | None, lake: str | None, project: Path, name: str | None) -> DeclaredPipeline:
    if captures is None:
        if lake is not None:
            raise DeclarationError("--lake needs --captures here: the lake of a declared pipeline is in its file")
        return project_pipeline(project, name)
    if lake is None:
        raise DeclarationError("--captures needs --lake, the folder of the lake")
    return capture_pipeline(captures, lake, name or _DEFAULT_NAME)


_PROJECT = click.option(
    "--project", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Folder in the Dagster project."
)
_NAME = click.argument("pipeline", required=False)


def _source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name a pipeline with a source. The command receives `declared`."""

    @_NAME
    @_PROJECT
    @click.option("--captures", type=click.Path(), help="Folder of capture files, instead of a project.")
    @click.option("--lake", help="Folder or Hadoop URI of the lake, with --captures.")
    @functools.wraps(command)
    def with_pipeline(
        pipeline: str | None, project: Path, captures: str | None, lake: str | None, **others: Any
    ) -> None:
        command(_declared(captures, lake, project, pipeline), **others)

    return with_pipeline


def _lake_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name a pipeline to read. The command receives its `Lake`."""

    @_PROJECT
    @click.option("--lake", help="Folder or Hadoop URI of the lake, instead of a project.")
    @click.option("--name", help="The pipeline, if there are several.")
    @functools.wraps(command)
    def with_lake(project: Path, lake: str | None, name: str | None, **others: Any) -> None:
        if lake:
            command(readable_lake(LakePaths(lake, name or lake_pipeline_name(lake))), **others)
        else:
            declared = project_pipeline(project, name)
            command(readable_lake(declared.pipeline.paths, declared), **others)

    return with_lake


@cli.command()
@_source_options
def run(declared: DeclaredPipeline) -> None:
    """Ingest new records, decode them and advance the mirrors, once.

    The run is stored in the Dagster instance of DAGSTER_HOME if that is set.
    """
    _print_warnings(ingest(declared))
    say()
    say("\n".join(status_lines(read_status(readable_lake(declared.pipeline.paths, declared)))))


@cli.command()
@_source_options
def follow(declared: DeclaredPipeline) -> None:
    """Ingest batch after batch in one Spark session, as the fields `follow` and `sensor` say, until Ctrl-C."""
    say(f"• following {declared.pipeline.source.location} into {declared.pipeline.lake}; Ctrl-C ends it")
    while True:  # a run ends after follow.maximum_minutes or follow.idle_minutes; the next one uses the same session
        finished = run_job(declared, "follow")
        _finish(finished)
        if finished.end == NEW_CODE:
            say(f"• {NEW_CODE}: starting again")
            _start_again()


def _start_again() -> NoReturn:
    """Replaces this process by one with the same arguments, which loads code and declaration again."""
    sys.stdout.flush()
    os.chdir(_STARTED_IN)  # to which arguments refer
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@cli.command()
@_source_options
@click.option("--tables", multiple=True, metavar="PATTERN", help="Rebuild these mirrors only; * for all.")
def rebuild(declared: DeclaredPipeline, tables: tuple[str, ...]) -> None:
    """Rebuild change log and mirrors from the raw records, and replace the tables that differ."""
    _finish(run_job(declared, "rebuild", {"rebuild_all": {"tables": list(tables)}}))


@cli.command()
@_source_options
@click.option("--tables", multiple=True, metavar="PATTERN", required=True, help="Held tables; * for all.")
def approve(declared: DeclaredPipeline, tables: tuple[str, ...]) -> None:
    """Apply the statements that hold these tables, and what waits behind them. `status` shows what they remove."""
    _finish(run_job(declared, "approve_ddl", {"approve_statements": {"tables": list(tables)}}))


@cli.command()
@_source_options
@click.option("--positions", multiple=True, metavar="POSITION", help="topic/partition@offset, or @first-last.")
@click.option("--rules", multiple=True, metavar="PATTERN", help="Rules; * for all dead letters.")
@click.option("--tables", multiple=True, metavar="PATTERN", help="Tables, as database.table.")
@click.option("--replacements", type=_FILE, metavar="FILE", help="Messages as they should be, as of `kcat -C -J`.")
@click.option("--note", default="", help="Why, stored in dead_letter_releases.")
def release(declared: DeclaredPipeline, replacements: Path | None, note: str, **filters: tuple[str, ...]) -> None:
    """Decode dead letters again, as they are or with a replacement, and rebuild what depends on them.

    Those that match all given filters, and those with a replacement.
    """
    config: dict[str, Any] = {name: list(given) for name, given in filters.items()}
    config |= {"replacement_file": str(replacements or ""), "note": note}
    finished = run_job(declared, "release_dead_letters", {"release_letters": config})
    _finish(finished)
    say(f"• released: {finished.outputs['released'].value}, not released: {finished.outputs['not_released'].value}")


@cli.command()
@_source_options
def verify(declared: DeclaredPipeline) -> None:
    """Compare the before images of new row changes with the mirrors."""
    _finish(run_job(declared, "verify"))


@cli.command()
@_source_options
def snapshot(declared: DeclaredPipeline) -> None:
    """Load the export of the field `snapshot`, and begin the mirrors of its tables with it."""
    if declared.pipeline.snapshot is None:
        raise DeclarationError(f"the pipeline {declared.pipeline.name} has no field snapshot, which names the export")
    _finish(run_job(declared, "snapshot"))


def _finish(finished: FinishedRun) -> None:
    require_success(finished)
    _print_warnings(finished)


def _print_warnings(finished: FinishedRun) -> None:
    for line in finished.warnings:
        say(f"warning: {line}", fg="yellow")


@cli.command()
@_lake_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--openmetrics", type=_FILE, help="Write an OpenMetrics file instead.")
def status(lake: Lake, as_json: bool, openmetrics: Path | None) -> None:
    """Show mirrors, lag, gaps, held statements and dead letters."""
    found = read_status(lake)
    if openmetrics is not None:
        # a scraper never sees half of a file
        temporary = openmetrics.with_name(f"{openmetrics.name}.tmp")
        temporary.write_text(open_metrics(found), encoding="utf-8")
        temporary.replace(openmetrics)
    elif as_json:
        say(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        say("\n".join(status_lines(found)))


@cli.command()
@click.argument("table")
@click.argument("key", nargs=-1)
@_lake_options
@click.option("--where", multiple=True, metavar="COLUMN=TEXT", help="Only changes with this text before or after.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N entries.")
@click.option("--messages", is_flag=True, help="Print the message of each entry, too.")
def history(
    lake: Lake, table: str, key: tuple[str, ...], where: tuple[str, ...], last: int | None, messages: bool
) -> None:
    """Show the DDL and every change of TABLE (database.table, as upstream names it), or of its row KEY.

    KEY is the text of each key column, in the order of the message's key: 7, or 7 2026-11-22.
    """
    database, dot, name = table.partition(".")
    if not dot:
        raise click.BadParameter(f"expected database.table, found {table!r}", param_hint="TABLE")
    pairs = [pair.partition("=") for pair in where]
    if not all(equals for _, equals, _ in pairs):
        raise click.BadParameter(f"expected COLUMN=TEXT, found {list(where)}", param_hint="--where")
    rows = table_history(lake, database, name, {column: text for column, _, text in pairs}, key)
    shown = rows[-last:] if last else rows
    for row, line in zip(shown, history_lines(shown), strict=True):
        say(line)
        if messages:
            say("\n".join(message_lines(lake, row)))
    if not rows:
        nothing = f"the change log of {lake.paths.pipeline} has nothing of {table} {' '.join(key)}".rstrip()
        raise DeclarationError(f"{nothing}. Similar tables: {', '.join(similar_tables(lake, table)) or 'none'}")
    if (key or where) and all("sql" in row for row in rows):
        say("no row change matches: only the DDL of the table is shown", err=True)


@cli.command()
@_lake_options
@click.option("--rule", help="Only letters of this rule.")
@click.option("--last", type=click.IntRange(min=1), default=20, metavar="N", help="Only the last N; 20 by default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the message.")
def letters(lake: Lake, rule: str | None, last: int, as_json: bool) -> None:
    """Show dead letters: records and rows that broke a rule."""
    columns = ["batch_id", "topic", "partition", "offset", "rule", "database", "table", "column", "reason"]
    where: list[Any] = [("rule", "=", rule)] if rule else []
    found = read_rows(lake, "dead_letters", *where, columns=columns)
    found.sort(key=lambda row: (row["batch_id"], row["topic"], row["partition"], row["offset"]))
    if as_json:
        # `payload`, as in a file of replacements
        shown = [{**row, "payload": message_value(lake, row)} for row in found[-last:]]
        say(json.dumps(shown, indent=2, ensure_ascii=False, default=json_default))
        return
    rows = [
        (
            f"{row['topic']}/{row['partition']}@{row['offset']}",
            row["rule"],
            ".".join(filter(None, (row["database"], row["table"]))),
            row["reason"] or "",
        )
        for row in found[-last:]
    ]
    say("\n".join(table_lines(("position", "rule", "table", "reason"), rows)) if rows else "no dead letters")
    if len(found) > last:
        say(f"({len(found) - last} earlier ones are not shown)")


@cli.command()
@_NAME
@_PROJECT
@click.option("--captures", type=click.Path(), help="Folder of capture files, instead of a project.")
@click.option("--lake", help="Folder or Hadoop URI of the lake, with --captures.")
@click.option("--no-spark", is_flag=True, help="Leave out what needs a start of Spark.")
def doctor(pipeline: str | None, project: Path, captures: str | None, lake: str | None, no_spark: bool) -> None:
    """Check Java, jars, lake, source and versions, each with a remedy. Exit code 1 if a check fails."""
    declared = None
    try:
        declared = _declared(captures, lake, project, pipeline)
    except DeclarationError as error:
        _print_finding(checks.Finding("pipeline", str(error), _PROJECT_REMEDY))
    failed = declared is None
    for finding in checks.examine(declared, with_spark=not no_spark):
        _print_finding(finding)
        failed |= not finding.passed
    if failed:
        sys.exit(1)


def _print_finding(finding: checks.Finding) -> None:
    mark = click.style("ok  ", fg="green") if finding.passed else click.style("FAIL", fg="red")
    click.echo(f"{mark} {finding.name}: {printable(finding.text)}")
    if not finding.passed:
        say(f"     {finding.remedy}")


@cli.command()
@click.argument("page", required=False)
@click.argument("section", nargs=-1)
def docs(page: str | None, section: tuple[str, ...]) -> None:
    """Show the documentation of this version.

    Its list of pages, PAGE, or the section of it whose heading begins with the words SECTION.
    """
    if page is None:
        say("\n".join(table_lines(("page", "title"), list(page_titles().items()))))
    else:
        say(read_page(page, " ".join(section)).rstrip())


@cli.command(name="version")
def show_version() -> None:
    """Show the versions of this package and of what it uses."""
    for name, found in checks.installed_versions().items():
        say(f"{name} {found}")


if __name__ == "__main__":
    main()
