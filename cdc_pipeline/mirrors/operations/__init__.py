"""What an operator starts: dry run of DDL, rebuild, release of dead letters, maintenance.

The top room of mirrors. Only `assets` and `component` import it.
"""
