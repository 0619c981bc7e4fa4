"""Which row changes a cut takes in: how far the stream is complete, what is late, and what was delivered before.

Imports `model`, `settings` and `ddl`, and knows nothing of `changes`. `planning`, `execution` and what is above import it.
"""
