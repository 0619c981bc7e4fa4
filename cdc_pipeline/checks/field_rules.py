"""The field rules of the documents that good messages may break: counted, and shown with places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from cdc_pipeline.checks.field_notes import NOTHING, read_notes, write_notes
from cdc_pipeline.contracts.validation import breaches
from cdc_pipeline.dialects.decode import SENT_CONTRACTS
from cdc_pipeline.dialects.shapes import messages_at, sent
from cdc_pipeline.spark.few_rows import for_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from cdc_pipeline.checks.contract import TableLook
    from cdc_pipeline.contracts.validation import Breach
    from cdc_pipeline.dialects.decode import DialectName
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.sources.places import Place

FIELD_RULES = "field_rules"
MOST_SHAPES = 500
"""New shapes that one run looks at; the others wait for the next message of theirs."""
_OF_EACH_ROW = {"tso_is_es"}
"""Rules that the tables have for each of their rows: looked at in the messages too, they would count twice."""


def field_rules_result(
    spark: SparkSession,
    paths: LakePaths,
    looks: Sequence[TableLook],
    batches: Sequence[int],
    dialect: DialectName,
    key: dg.AssetKey,
) -> dg.AssetCheckResult:
    """Warns where messages of this or an earlier run broke a rule and went on. Once a shape of messages is known, none of
    its messages is looked at again but for the rules that each row is held to."""
    notes = read_notes(paths)
    if batches:
        if notes.batch > max(batches):
            notes = NOTHING  # the lake was taken back
        known = set(notes.shapes)
        new = {shape.number: shape.place for look in looks for shape in look.shapes if shape.number not in known}
        chosen = dict(list(new.items())[:MOST_SHAPES])
        found = [breach for look in looks for breach in look.warnings]
        found += warnings_at(spark, paths, chosen.values(), dialect) if chosen else []
        before, notes = notes, notes.with_look(max(batches), chosen, found)
        if notes.shapes != before.shapes or found:
            write_notes(paths, notes)
    return dg.AssetCheckResult(
        check_name=FIELD_RULES,
        asset_key=key,
        passed=not notes.warned,
        severity=dg.AssetCheckSeverity.WARN,
        description=None
        if not notes.warned
        else "; ".join(f"{warned.rule}: {warned.count}, such as {warned.places[0]}" for warned in notes.warned)
        + ". These messages were read all the same: docs/dialects.md has the rules, with what each document says",
        metadata={
            "shapes": len(notes.shapes),
            **{
                warned.rule: f"{warned.count}, expected: {warned.expected}; such as {', '.join(warned.places)}"
                + (f" ({warned.found})" if warned.found else "")
                + f"; last in batch {warned.last_batch}"
                for warned in notes.warned
            },
        },
    )


def warnings_at(spark: SparkSession, paths: LakePaths, places: Iterable[Place], dialect: DialectName) -> list[Breach]:
    """What Pandera finds in the messages at these places, as they were sent, of the rules that are warnings."""
    raw = spark.read.format("delta").load(paths.table("raw_topic_snapshot"))
    with for_rows(spark, 0), messages_at(raw, places) as messages:
        frame = sent(messages, dialect).persist()
        try:
            forms = [row["form"] for row in frame.select("form").distinct().collect()]
            found: list[Breach] = []
            for form in sorted(name for name in forms if name in SENT_CONTRACTS):
                contract = SENT_CONTRACTS[form]
                columns = ["topic", "partition", "offset", *contract.to_schema().columns]
                of_form = frame.where(frame["form"] == form).select(*columns)
                found += [
                    breach for breach in breaches(of_form, contract) if breach.warn and breach.rule not in _OF_EACH_ROW
                ]
        finally:
            frame.unpersist()
    return found
