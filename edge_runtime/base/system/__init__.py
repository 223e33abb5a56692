"""The process and its operating system: event loop, retries, secrets, durable files, child processes."""
