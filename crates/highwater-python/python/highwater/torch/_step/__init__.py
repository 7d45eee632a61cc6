"""Whole training steps: forward, backward and updates in one graph."""
