"""Decodes raw records into `change_log`, `ddl_history`, `watermarks` and `dead_letters`. One module per dialect.

Imports `sources` and the rooms below. `component`, `pipeline`, `mirrors`, `checks` and `assets` import it.
"""
