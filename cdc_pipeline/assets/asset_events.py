"""Results of stages as events of a job that has no assets, with the version tags that Dagster sets for its assets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import dagster as dg

from cdc_pipeline.assets.nodes import CODE_VERSION
from cdc_pipeline.checks.results import check_key
from cdc_pipeline.checks.specs import BLOCKING

StageResult: TypeAlias = "dg.MaterializeResult[None] | dg.AssetCheckResult"
"""What a stage reports for Dagster: an asset's step yields it, other steps convert it first."""
AssetEvent: TypeAlias = "dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation"
_VERSION = "dagster/data_version"
_NEVER_MATERIALIZED = "INITIAL"
"""Dagster's data version of an asset without materialization."""


@dataclass(frozen=True)
class AssetEvents:
    """Converts results of stages. Without the version tags, the UI would show the assets as out of sync."""

    instance: dg.DagsterInstance
    parents: Mapping[dg.AssetKey, Collection[dg.AssetKey]]
    """Assets that an asset depends on."""
    new_mirror_parents: Collection[dg.AssetKey]
    """The same for assets that are not in `parents`: mirrors that the loaded definitions do not have yet."""
    cuts: dg.AssetKey | None = None
    """`consistent_cuts`, if it depends on new mirrors, too, as soon as they are loaded."""
    _versions: dict[dg.AssetKey, str] = field(default_factory=dict)
    """Data versions of the newest materializations, as far as they were needed."""
    _new_mirrors: list[dg.AssetKey] = field(default_factory=list)

    def convert(self, result: StageResult | dg.AssetObservation) -> AssetEvent:
        if isinstance(result, dg.AssetObservation):
            return result
        return self._evaluation(result) if isinstance(result, dg.AssetCheckResult) else self.materialization(result)

    def report(self, context: dg.OpExecutionContext, result: StageResult | dg.AssetObservation) -> None:
        """Stores the event in the log of the run at once.

        For a step that reports without end: Dagster keeps every event that a step yields until the step ends, about 70 KB
        for a batch.
        """
        context.log_event(self.convert(result))  # type: ignore[arg-type]  # it takes evaluations of checks, too
        for _ in context.consume_events():
            pass

    def failed_blocking_checks(self, results: Iterable[StageResult]) -> list[str]:
        """Names of the checks after which Dagster would not run downstream steps."""
        checks = (result for result in results if isinstance(result, dg.AssetCheckResult) and not result.passed)
        keys = (check_key(check) for check in checks if check.severity is dg.AssetCheckSeverity.ERROR)
        return [key.to_user_string() for key in keys if key.name in BLOCKING]

    def materialization(self, result: dg.MaterializeResult[None]) -> dg.AssetMaterialization:
        assert result.asset_key is not None
        assert result.data_version is not None
        version = result.data_version.value
        tags = {
            _VERSION: version,
            "dagster/data_version_is_user_provided": "true",
            "dagster/code_version": CODE_VERSION,
        }
        if result.asset_key not in (*self.parents, *self._new_mirrors):
            self._new_mirrors.append(result.asset_key)
        added = self._new_mirrors if result.asset_key == self.cuts else ()
        tags |= self._input_tags((*self.parents.get(result.asset_key, self.new_mirror_parents), *added))
        self._versions[result.asset_key] = version
        return dg.AssetMaterialization(result.asset_key, metadata=result.metadata, tags=tags)

    def yielded(
        self, results: Iterable[StageResult], selected: Collection[dg.AssetKey | dg.AssetCheckKey | None]
    ) -> Iterator[StageResult | AssetEvent]:
        """What the step of mirrors yields: results of what is selected, and events of the rest, such as new mirrors."""
        for result in results:
            key = check_key(result) if isinstance(result, dg.AssetCheckResult) else result.asset_key
            if key not in selected:
                yield self.convert(result)
            elif isinstance(result, dg.MaterializeResult) and key == self.cuts:
                yield result._replace(tags=self._input_tags(self._new_mirrors))
            else:
                yield result

    def _input_tags(self, parents: Iterable[dg.AssetKey]) -> dict[str, str]:
        names = {parent.to_user_string(): self._version(parent) for parent in parents}
        versions = {f"dagster/input_data_version/{name}": version for name, version in names.items()}
        return {**versions, **{f"dagster/input_event_pointer/{name}": "NULL" for name in names}}

    def _version(self, key: dg.AssetKey) -> str:
        if key not in self._versions:
            event = self.instance.get_latest_materialization_event(key)
            materialization = None if event is None else event.asset_materialization
            tags = {} if materialization is None else materialization.tags or {}
            self._versions[key] = tags.get(_VERSION, _NEVER_MATERIALIZED)
        return self._versions[key]

    def _evaluation(self, result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
        key = check_key(result)
        return dg.AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
            blocking=key.name in BLOCKING,
        )
