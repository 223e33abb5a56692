"""What an operator sees of a running application."""
