"""Which variant and engine answers fastest on this machine: measured, remembered."""
