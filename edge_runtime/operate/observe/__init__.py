"""Reports to the operator of a running application."""
