"""The check `field_rules`: rules of the format documents that accepted messages may break, with counts and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.checks.field_notes import read_notes, write_notes
from cdc_pipeline.checks.markdown import check_result
from cdc_pipeline.contracts.validation import find_breaches
from cdc_pipeline.dialects.decode import COMPLETE_CONTRACTS
from cdc_pipeline.dialects.senders import unnumbered_topics, with_senders
from cdc_pipeline.dialects.shapes import complete_messages, messages_at
from cdc_pipeline.spark.small_frames import small_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import dagster as dg

    from cdc_pipeline.checks.contract import TableValidation
    from cdc_pipeline.contracts.validation import Breach
    from cdc_pipeline.dialects.decode import DialectName
    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.positions import BatchPosition

FIELD_RULES = "field_rules"
MOST_SHAPES = 500
"""Maximum number of new shapes per run. The others are validated with a later message of the same shape."""
_VALIDATED_PER_ROW = {"tso_is_es"}
"""Rules that `validate_table` checks for each row. Checking them in messages too would count them twice."""


def field_rules_result(
    lake: Lake,
    validations: Sequence[TableValidation],
    batches: Sequence[int],
    dialect: DialectName,
    key: dg.AssetKey,
) -> dg.AssetCheckResult:
    """Warns if accepted messages of this or an earlier run break a rule.

    One message per shape is validated. Rules in `_VALIDATED_PER_ROW` are checked for every row.
    """
    notes = read_notes(lake.paths)
    if batches:
        known = set(notes.shapes)
        new = {
            shape.number: shape.position
            for validation in validations
            for shape in validation.shapes
            if shape.number not in known
        }
        selected = dict(list(new.items())[:MOST_SHAPES])
        found = [breach for validation in validations for breach in validation.warnings]
        found += warnings_at(lake, selected.values(), dialect) if selected else []
        before, notes = notes, notes.extended(max(batches), selected, found)
        if notes.shapes != before.shapes or found:
            write_notes(lake.paths, notes)
    return check_result(
        FIELD_RULES,
        key,
        [f"{one.rule}: {one.count}, for example {one.places[0]}" for one in notes.warned],
        "These messages were accepted. `cdc-pipeline docs dialects all field rules` lists the rules with the clause of each "
        "document",
        {
            "shapes": len(notes.shapes),
            **{
                warned.rule: f"{warned.count}, expected: {warned.expected}; for example {', '.join(warned.places)}"
                + (f" ({warned.found})" if warned.found else "")
                + f"; last in batch {warned.last_batch}"
                for warned in notes.warned
            },
        },
    )


def warnings_at(lake: Lake, places: Iterable[BatchPosition], dialect: DialectName) -> list[Breach]:
    """Validates the original messages at these positions and returns the broken rules that are warnings."""
    raw = lake.read("raw_topic_snapshot")
    with small_query(lake.spark, 0), messages_at(raw, places) as messages:
        frame = complete_messages(with_senders(messages, unnumbered_topics(lake)), dialect).persist()
        try:
            forms = [row["form"] for row in frame.select("form").distinct().collect()]
            found: list[Breach] = []
            for form in sorted(name for name in forms if name in COMPLETE_CONTRACTS):
                contract = COMPLETE_CONTRACTS[form]
                columns = ["topic", "partition", "offset", *contract.to_schema().columns]
                of_form = frame.where(frame["form"] == form).select(*columns)
                found += [
                    breach
                    for breach in find_breaches(of_form, contract)
                    if breach.warn and breach.rule not in _VALIDATED_PER_ROW
                ]
        finally:
            frame.unpersist()
    return found
