"""One cut from its window to its row in `consistent_cuts`: reads, plans, carries out, accounts, publishes.

The place where planning and execution meet, so it imports both. `reading`, `rebuild`, `assets` and `checks` import it.
"""
