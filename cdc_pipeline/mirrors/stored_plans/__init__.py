"""A cut as it is planned, and how that is stored in `cut_plans`, so that any run finishes it as it was begun.

Names and fields of its classes are in lakes: they stay. Imports `planning` and what is below, never `execution`; `cuts`
and `rebuild` import it.
"""
