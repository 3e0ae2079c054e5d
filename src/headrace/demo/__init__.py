"""The demonstration that comes with the package: real flights, the job over them, and what is shown of its result."""
