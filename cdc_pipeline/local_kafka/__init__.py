"""A real Apache Kafka broker on this machine, for the tests, the demo and the benchmarks."""
