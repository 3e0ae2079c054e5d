"""The demonstration that comes with the package: real flights, the job over them, and what is shown of its result.

Nothing here is known to the rest of Headrace: it uses what any user could use.
"""
