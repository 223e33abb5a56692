"""Asking the cloud about hard cases: protocol clients, the question, refusals, the forwarder."""
