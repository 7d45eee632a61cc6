"""Optimizers: what their updates need, and how they are done."""
