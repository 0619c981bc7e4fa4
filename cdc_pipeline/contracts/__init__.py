"""Pandera models of messages and of our tables: the only place of a field rule, and the SQL that follows from it.

Imports `schemas` only. Dialects, decoding, sources and checks ask it what a field must be.
"""
