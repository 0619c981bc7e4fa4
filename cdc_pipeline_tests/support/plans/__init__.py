"""Statements and rows for the planner, and what it plans for them, without Spark."""
