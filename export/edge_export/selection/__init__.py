"""Which candidates ship: made, timed, judged, chosen."""
