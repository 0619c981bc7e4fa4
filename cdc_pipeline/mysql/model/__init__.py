"""Table definitions and the statements that change them, as frozen values.

Imports no other room of mysql. Every room imports it.
"""
