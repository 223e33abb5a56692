"""Many recordings at once: on all cores of a machine, or of a cluster."""
