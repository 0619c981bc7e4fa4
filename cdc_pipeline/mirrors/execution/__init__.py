"""Steps carried out on Delta tables, each in one or a few commits that are skipped where they are in.

Takes steps as they are and never imports `planning`. Imports `changes`, `window`, `ddl`, `settings` and `model`; `cuts` and
what is above import it.
"""
