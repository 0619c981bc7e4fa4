"""One cut: its inputs, stored plan, execution and row in `consistent_cuts`; reading all tables at a cut.

Imports both planning and execution. Operations, `assets` and `checks` import it.
"""
