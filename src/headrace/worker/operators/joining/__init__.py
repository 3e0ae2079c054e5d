"""Joins: with tables, of two streams, of tables by foreign keys."""
