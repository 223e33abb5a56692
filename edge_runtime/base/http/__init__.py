"""HTTP/1.1: message framing, and the one client."""
