"""The fields of a pipeline's file, one module per group: what may be written, how it is checked, and what it declares.

They import the values that they declare, of the rooms below. Only `component.component` imports them.
"""
