"""What things are: frozen values, checked when made. Standard library only; no clock, no input or output."""
