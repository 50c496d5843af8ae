"""Reading the boards again and again while something else happens, and what was read."""
