"""What the YAML file says of mirrors: table selection and routes, DDL policy, columns, the settings of a cut.

Imports only `model`. `component` creates these values, and every room above reads them.
"""
