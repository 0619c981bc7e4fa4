"""A model of an upstream database in plain Python, and of what its change streams may look like on Kafka."""
