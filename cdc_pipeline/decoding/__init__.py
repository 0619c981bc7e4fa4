"""The stage between raw and mirrors: each new batch becomes rows of `change_log` and of the tables beside it.

`dialects` says how a record is read; here a batch is read once, counted, and written. Imports `sources` and what is below;
`mirrors`, `checks` and `assets` import it.
"""
