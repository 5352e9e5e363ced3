"""Commands that prove: replicas of a group, and what was exported of its log."""
