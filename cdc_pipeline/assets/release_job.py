"""The job `<pipeline>_release_dead_letters`."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.failures import clear_failures
from cdc_pipeline.assets.metadata import shown_table
from cdc_pipeline.assets.mirrors import cut_maker
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.assets.opened_lake import opened_lake
from cdc_pipeline.assets.rebuild_job import content_table, remember_published
from cdc_pipeline.mirrors.operations.letter_choice import LetterChoice
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.operations.release import Letters, Releaser, ReleaseReport
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.spark.session import SparkLakehouse

_DESCRIPTION = """Takes dead letters in, as they are (the rule or the claim store was put right since) or with a message in
their place. All is made again with them at their own place in the stream, so that none can overwrite what is newer. One
that breaks a rule still stays a dead letter, and where none is left the lake stays as it is."""
_MOST_LOGGED = 50


class ReleaseConfig(dg.Config):
    """Which dead letters are to be released: those that positions, rules and tables all choose, as far as these are given,
    and those that have a replacement."""

    positions: list[str] = Field(
        default_factory=list,
        description="topic/partition@offset, or topic/partition@first-last, such as shop/0@17-20.",
    )
    rules: list[str] = Field(
        default_factory=list,
        description="Patterns on the rule's name (column rule of dead_letters), such as value_has_type (a star alone: all).",
    )
    tables: list[str] = Field(default_factory=list, description="Patterns on database.table, such as shop.*.")
    replacements: dict[str, str] = Field(
        default_factory=dict,
        description="By topic/partition@offset the message (its whole value, as text) that is decoded in place of the "
        "record's own, from now on and in every rebuild.",
    )
    replacement_file: str = Field(
        default="",
        description="A file of such messages: a line each, JSON with topic, partition, offset and payload (or "
        "payload_base64) as `kcat -C -J` prints it; may be .gz. A path on the machine that runs the job.",
    )
    note: str = Field(default="", description="Why, for whoever asks later; kept in dead_letter_releases.")


def release_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(name=f"{pipeline.name}_release_letters", description=_DESCRIPTION)
    def release_letters(
        context: dg.OpExecutionContext, config: ReleaseConfig, spark: SparkLakehouse
    ) -> dg.Output[None]:
        with clear_failures():
            choice = _choice(config)
            with opened_lake(context, pipeline, spark):
                maker = cut_maker(spark, pipeline, context.run.run_id, context.log.info)
                rebuilder = Rebuilder(maker, pipeline.dialect, pipeline.claim_store)
                report = Releaser(rebuilder, config.note).released(choice)
                if report.rebuild is not None and report.rebuild.cut_id is not None:
                    remember_published(spark, pipeline)
        for letter in report.dead.shown[:_MOST_LOGGED]:
            context.log.warning(f"{letter.place} stays a dead letter: {letter.rule}: {letter.reason}")
        if not report.released.count:
            raise dg.Failure(
                "none of the chosen dead letters could be released, and nothing was changed: each breaks a rule still",
                metadata={"dead": _letters(report.dead)},
                allow_retries=False,
            )
        return dg.Output(None, metadata=_metadata(report))

    return one_step_job(pipeline, "release_dead_letters", _DESCRIPTION, release_letters)


def _choice(config: ReleaseConfig) -> LetterChoice:
    try:
        return LetterChoice(
            tuple(config.positions),
            tuple(config.rules),
            tuple(config.tables),
            config.replacements,
            config.replacement_file,
        )
    except ValueError as error:
        raise dg.Failure(str(error), allow_retries=False) from error


def _metadata(report: ReleaseReport) -> dict[str, dg.MetadataValue]:
    found = report.rebuild
    return {
        "released": dg.MetadataValue.int(report.released.count),
        "released_letters": _letters(report.released),
        "still_dead": dg.MetadataValue.int(report.dead.count),
        "dead": _letters(report.dead),
        **({} if found is None else {"cut": dg.MetadataValue.text(str(found.cut_id)), "content": content_table(found)}),
    }


def _letters(letters: Letters) -> dg.TableMetadataValue:
    rows = ((letter.place, letter.table, letter.rule, letter.reason) for letter in letters.shown)
    return shown_table(["place", "table", "rule", "reason"], rows)
