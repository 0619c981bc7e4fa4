"""The definition of a table, and the changes that a statement makes to it, as frozen values.

Imports no other room of mysql. Every room imports it.
"""
