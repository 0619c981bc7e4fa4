"""The job `<pipeline>_release_dead_letters`."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.jobs import one_step_job, rebuild_metadata, rebuilder, store_rebuilt_catalog
from cdc_pipeline.assets.metadata import table_value
from cdc_pipeline.assets.opened_lake import open_lake
from cdc_pipeline.mirrors.operations.letter_choice import DeadLetterChoice
from cdc_pipeline.mirrors.operations.release import DeadLetters, Releaser, ReleaseReport
from cdc_pipeline.pipeline import Pipeline

_DESCRIPTION = """Decodes dead letters again: unchanged (after a fix of the rule or of the claim store), or with a
replacement message. Rebuilds change log and mirrors with the released records at their own offsets, so that none overwrites
a newer change. A record that still breaks a rule stays a dead letter. If none is released, the lake does not change."""
_MOST_LOGGED = 50


class ReleaseConfig(dg.Config):
    """Selects dead letters: those that match all given filters (positions, rules, tables), and those with a replacement."""

    positions: list[str] = Field(
        default_factory=list,
        description="topic/partition@offset, or topic/partition@first-last, such as shop/0@17-20.",
    )
    rules: list[str] = Field(
        default_factory=list,
        description="Patterns on the rule (column rule of dead_letters), such as value_has_type; * selects all.",
    )
    tables: list[str] = Field(default_factory=list, description="Patterns on database.table, such as shop.*.")
    replacements: dict[str, str] = Field(
        default_factory=dict,
        description="Replacement messages by topic/partition@offset. This run and every later rebuild decode the "
        "replacement (the whole value, as text) in place of the record's value.",
    )
    replacement_file: str = Field(
        default="",
        description="File with replacement messages, on the machine that runs the job; may be .gz. One JSON object per "
        "line with topic, partition, offset and payload (or payload_base64), as `kcat -C -J` prints it.",
    )
    note: str = Field(default="", description="Reason of the release, stored in dead_letter_releases.")


def release_job(pipeline: Pipeline) -> dg.JobDefinition:
    def release_letters(context: dg.OpExecutionContext, config: ReleaseConfig) -> dg.Output[None]:
        choice = _choice(config)
        with open_lake(context, pipeline) as lake:
            report = Releaser(rebuilder(lake, context, pipeline), config.note).release(choice)
            store_rebuilt_catalog(lake, report.rebuild)
        for letter in report.dead.shown[:_MOST_LOGGED]:
            context.log.warning(f"{letter.position} was not released: it breaks {letter.rule}: {letter.reason}")
        if not report.released.count:
            raise dg.Failure(
                "none of the selected dead letters was released: each still breaks a rule; nothing was changed",
                metadata={"not_released_dead_letters": _dead_letters_table(report.dead)},
                allow_retries=False,
            )
        return dg.Output(None, metadata=_metadata(report))

    return one_step_job(pipeline, "release_dead_letters", _DESCRIPTION, release_letters)


def _choice(config: ReleaseConfig) -> DeadLetterChoice:
    try:
        return DeadLetterChoice(
            tuple(config.positions),
            tuple(config.rules),
            tuple(config.tables),
            config.replacements,
            config.replacement_file,
        )
    except ValueError as error:
        raise dg.Failure(str(error), allow_retries=False) from error


def _metadata(report: ReleaseReport) -> dict[str, dg.MetadataValue]:
    return {
        "released": dg.MetadataValue.int(report.released.count),
        "released_dead_letters": _dead_letters_table(report.released),
        "not_released": dg.MetadataValue.int(report.dead.count),
        "not_released_dead_letters": _dead_letters_table(report.dead),
        **({} if report.rebuild is None else rebuild_metadata(report.rebuild)),
    }


def _dead_letters_table(letters: DeadLetters) -> dg.TableMetadataValue:
    rows = ((str(letter.position), letter.table, letter.rule, letter.reason) for letter in letters.shown)
    return table_value(["position", "table", "rule", "reason"], rows)
