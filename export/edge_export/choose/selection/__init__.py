"""Selection of the candidates that ship: made, timed, evaluated, chosen."""
