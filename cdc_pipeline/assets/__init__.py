"""The assets and jobs of a pipeline, as Dagster shows them: each calls one stage and reports its metadata.

May import every room below it, but no `component`. Only `component` and `sensors` import it.
"""
