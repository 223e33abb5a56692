"""Terminal view of a running application: asks it over its Unix socket and draws what it says."""
