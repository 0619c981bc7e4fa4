"""Copies: what shows that a row change or a statement was sent before. Kafka and the encoders deliver at least once.

Imports `model`. `changes`, planning and cuts import it. Writes nothing.
"""
