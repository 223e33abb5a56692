"""Events: what the answers of a key come to over time, by the rules of the application or of its bundle."""
