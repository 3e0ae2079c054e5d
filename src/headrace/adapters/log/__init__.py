"""The embedded log: streams as data files in a folder, everything that commits in one SQLite catalog beside them.

The catalog's modules import no pyarrow, so that commands that only look answer at once.
"""
