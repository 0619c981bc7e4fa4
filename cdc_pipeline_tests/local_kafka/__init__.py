"""Runs a local Kafka broker in KRaft mode, and produces captures to it.

Imports `cdc_pipeline`. Tests, benchmarks and `make kafka-demo` import it; the wheel does not contain it.
"""
