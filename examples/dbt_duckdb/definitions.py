"""The pipeline `shop` and dbt models on its mirrors, in one Dagster project."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_dbt import DagsterDbtTranslator, DbtCliResource, DbtProject, dbt_assets

from cdc_pipeline import CaptureFilesSource, CdcPipeline

HERE = Path(__file__).resolve().parent
CAPTURES = os.environ.get("CDC_CAPTURES", str(HERE.parents[1] / "data" / "captures" / "shop"))
CUTS = dg.AssetKey(["shop", "consistent_cuts"])

# All models have this condition, so each run builds all of them, from one cut. Not `since_last_handled`: a cut that is
# published during a run would count as handled when this run updates the model.
AFTER_A_CUT = (
    dg.AutomationCondition.asset_matches(CUTS, dg.AutomationCondition.newly_updated()).since(
        dg.AutomationCondition.newly_requested()
    )
    & ~dg.AutomationCondition.in_progress()
)

project = DbtProject(project_dir=HERE / "shop_models")
if not project.manifest_path.exists():
    project.preparer.prepare(project)
project.prepare_if_dev()


class ShopTranslator(DagsterDbtTranslator):
    def get_automation_condition(self, dbt_resource_props: Mapping[str, Any]) -> dg.AutomationCondition:
        return AFTER_A_CUT


@dbt_assets(manifest=project.manifest_path, project=project, dagster_dbt_translator=ShopTranslator())
def shop_models(context: dg.AssetExecutionContext, dbt: DbtCliResource) -> Iterator[Any]:
    yield from dbt.cli(["build"], context=context).stream()


@dg.definitions
def defs() -> dg.Definitions:
    pipeline = CdcPipeline(
        name="shop",
        source=CaptureFilesSource(type="capture_files", path=CAPTURES),
        lake=str(HERE / "data" / "lake"),
    )
    models = dg.Definitions(
        assets=[shop_models],
        jobs=[dg.define_asset_job("shop_models_build", selection=[shop_models])],
        sensors=[
            dg.AutomationConditionSensorDefinition(
                "models_after_a_cut", target=[shop_models], default_status=dg.DefaultSensorStatus.RUNNING
            )
        ],
        resources={"dbt": DbtCliResource(project_dir=project)},
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(pipeline.build_defs(), models)
