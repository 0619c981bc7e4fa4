"""What a pipeline declares of its tables: selection and routes, `ddl_policy`, columns, the settings of a cut.

Imports `model`. `component` makes these values; everything above reads them.
"""
