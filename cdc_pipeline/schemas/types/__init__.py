"""What MySQL's types are in a mirror, and how the text of a message becomes a value of one.

Imports `model`. DDL, expressions, dialects and mirrors import it.
"""
