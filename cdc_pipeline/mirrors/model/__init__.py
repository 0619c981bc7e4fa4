"""What a mirror is and the steps that can change it: state, steps, DDL events, merged tables, masks. Values only.

Imports no other room of mirrors. All of them import it.
"""
