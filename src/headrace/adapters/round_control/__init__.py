"""Signals from the driver to the containers of a round: by files where they share a machine, over TCP where they may not. A
file needs a folder that both see, and sees no other machine. Spark itself gives a Python task that runs nothing but its
cancellation, which kills the worker after some seconds, and nothing at all that lets it commit what it has reached."""
