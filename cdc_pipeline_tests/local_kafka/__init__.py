"""A real Kafka broker in KRaft mode on this machine, and a producer of captures.

Imports `cdc_pipeline`. Tests, benchmarks and `make kafka-demo` import it; the wheel does not contain it.
"""
