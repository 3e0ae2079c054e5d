"""The jars that no Python package brings: which they are, where they lie, that they are the right ones.

`pins` says which (with SHA-256, in the `*.pins` files beside it), `cache` where they are kept and how they get there,
`ivy` fetches them, `connector` decides whether a session needs ours. Nothing here starts Spark, or imports it.
"""
