"""Stories (small change histories with expected mirrors), pipelines that ingest them, and comparisons of the results."""
