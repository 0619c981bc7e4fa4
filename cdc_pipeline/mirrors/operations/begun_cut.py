"""The lake as a rebuild finds it: with no cut that is begun, or with one that it takes the place of."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.faults import is_everywhere
from cdc_pipeline.lake.paths import first_line, subfolders
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.quarantine import GivingUp
from cdc_pipeline.mirrors.cuts.reading import mirror_places
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.execution.mirror_folders import move_mirror
from cdc_pipeline.mirrors.settings.column_rules import MaskSaltError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker


def settled(maker: CutMaker, *, abandon: bool) -> bool:
    """Finishes a cut that was begun, and takes in what has come; a table that fails is put aside at once. What cannot be
    taken in stays for a later run.

    True where a begun cut could not be finished, and is to be given up: only where `abandon`, else its error is raised. So
    are those of the disk, the lake and Spark.
    """
    spark, paths = maker.spark, maker.paths
    try:
        replace(maker, giving_up=GivingUp(1)).bring_up_to_date()
    except Exception as error:
        begun = is_begun(spark, paths, published_cut(spark, paths))
        if isinstance(error, MaskSaltError) and not begun:
            maker.report("mask_salt has changed: what is masked is hashed anew")
            return False
        if is_everywhere(error) or (begun and not abandon) or (isinstance(error, LakeError) and not begun):
            raise
        maker.report(f"{'a cut that was begun' if begun else 'what has come'} cannot be taken in: {first_line(error)}")
        return begun
    return False


def take_mirrors_back(spark: SparkSession, paths: LakePaths, published: PublishedCut) -> None:
    """Takes the mirrors back to where the published cut has them, by their names: those that a cut which is given up has
    moved, and out of the way those that it has made. Rows and columns stay as they are."""
    entries = published_entries(published, paths)
    places = mirror_places(spark, paths, entries)
    aside = f"given-up-{uuid.uuid4().hex[:8]}"
    wanted = {places[entry.mirror_id]: entry.path for entry in entries}
    displaced = {place: path for place, path in wanted.items() if place != path}
    there = [path for database in subfolders(spark, f"{paths.home}/mirror") for path in subfolders(spark, database)]
    strangers = [path for path in there if path not in wanted and table_state(spark, path) is not None]
    # first all that stand in each other's way go to where nothing is
    between = {place: f"{paths.home}/dropped/{aside}/{number}" for number, place in enumerate([*displaced, *strangers])}
    for place, path in between.items():
        move_mirror(spark, paths, place, path)
    for place, path in displaced.items():
        move_mirror(spark, paths, between[place], path)
