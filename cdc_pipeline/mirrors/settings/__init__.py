"""The settings of mirrors from the YAML file: table selection and routes, DDL policy, column rules, and `CutSettings`.

Imports only `model`. `component` creates these values; every room above reads them.
"""
