"""Why Dagster's UI would show an asset as "Unsynced"."""

from __future__ import annotations

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest


def stale_causes(definitions: dg.Definitions, instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str]:
    """The reasons as Dagster words them; empty if the asset is in sync."""
    graph = definitions.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    return [cause.reason for cause in resolver.get_stale_causes(key)]
