"""The format version of a lake, which increases when a release changes what is stored.

It is a property of `raw_topic_snapshot`. Raw records are stored the same way in every format, and all other tables can be
rebuilt from them.
"""

from __future__ import annotations

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, commit_metadata, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.restored_tables import require_not_restored

LAKE_FORMAT = 2
_PROPERTY = "cdc.lake_format"
_RAW = "raw_topic_snapshot"


def require_known_format(lake: Lake) -> None:
    """Raises LakeError if the lake has another format, or has tables but no format; RestoredTableError if a RESTORE removed
    the format.

    A lake with only raw records passes, whatever its format: a run killed before `store_format` leaves one, and so does a
    user who follows the error's instructions.
    """
    raw = lake.state(_RAW)
    stored = None if raw is None else raw.properties.get(_PROPERTY)
    if raw is None or stored == str(LAKE_FORMAT) or _has_raw_only(lake):
        return
    require_not_restored(lake, lake.paths.table(_RAW))  # RESTORE reverts properties too
    home = lake.paths.home
    raise LakeError(
        f"{home}: the lake has format {stored or 'unknown'}, this version of cdc_pipeline reads and writes format "
        f"{LAKE_FORMAT}. Nothing was changed. Install the version that wrote the lake, or rebuild it from its raw records: "
        f"move all folders but {_RAW} out of {home}, then start a run (`cdc-pipeline docs operations upgrade`)",
        pipeline=lake.paths.pipeline,
    )


def _has_raw_only(lake: Lake) -> bool:
    others = (path for path in lake.paths.own_tables if path != lake.paths.table(_RAW))
    return all(table_state(lake.spark, path) is None for path in others)


def store_format(lake: Lake) -> None:
    """Stores the format in `raw_topic_snapshot`, if the table exists and lacks it.

    Call it after `require_known_format`, before any other table is written.
    """
    state = lake.state(_RAW)
    if state is None or state.properties.get(_PROPERTY) == str(LAKE_FORMAT):
        return
    # The writer's version must increase, but a lake may return to a lower format.
    commit = Commit(lake.paths.app_id("lake_format"), state.version + 1, {"format": LAKE_FORMAT})
    commit_metadata(lake.spark, lake.paths.table(_RAW), commit, properties={_PROPERTY: str(LAKE_FORMAT)})
