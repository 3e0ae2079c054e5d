"""The driver's side of a standalone group: each process runs its own containers, and one of them leads. Seed: SEP-11."""
