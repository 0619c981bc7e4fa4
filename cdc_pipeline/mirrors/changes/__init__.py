"""The row changes of a cut: in which segment of its table each lies, what identifies its row, and which are left of them.

Imports `model` and `ddl`, and knows nothing of `window`. `planning`, `execution` and what is above import it.
"""
