"""What may be wrong with a history, one anomaly per file. Each is shown to be caught by tests on made-up histories."""
