"""The demo: real watches, a broker, a small model, a large one behind a server, and a table at the end."""
