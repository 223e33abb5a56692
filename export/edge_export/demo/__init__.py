"""The demo: its two models and the evaluation that accompanies them."""
