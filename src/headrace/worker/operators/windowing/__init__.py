"""Sliding windows, and what states of them and of sessions are and how they grow."""
