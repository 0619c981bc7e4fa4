"""Topics of a Kafka broker as a source: what is new by the broker's offsets, and the settings and secrets of its clients.

Stands on the other modules of `sources`, which do not know it. `component.fields.source` declares it.
"""
