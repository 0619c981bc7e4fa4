"""The declaration of a pipeline, in YAML or Python, and the Dagster definitions that follow from it.

`component` has the class `CdcPipeline`, `fields` what its fields may say, `json_schema` what editors know of a file.
It may import everything; only the package itself, `demo` and `local_kafka` import it.
"""
