"""A model that answers: loading, fallback chain, failover."""
