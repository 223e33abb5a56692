"""Seeing and steering a running application: metrics, page, Home Assistant, updates, the governor, serving.

Imports everything but `app` and `tools`.
"""
