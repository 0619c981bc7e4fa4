"""One cut: its inputs, its stored plan, its execution, its row in `consistent_cuts`, and reading all tables at a cut.

Imports both planning and execution. Operations, `assets` and `checks` import it.
"""
