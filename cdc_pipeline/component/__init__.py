"""The YAML file of a pipeline: the class `CdcPipeline`, one module per group of fields, the JSON schema and the scaffold.

May import everything. Only the package itself and `demo` import it.
"""
