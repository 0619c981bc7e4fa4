"""Inputs of the planner and expected plans, without Spark."""
