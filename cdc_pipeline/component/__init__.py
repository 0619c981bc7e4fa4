"""The YAML file of a pipeline: the class `CdcPipeline`, one module per group of fields, JSON schema and scaffold.

May import everything. Only the package itself and `demo` import it.
"""
