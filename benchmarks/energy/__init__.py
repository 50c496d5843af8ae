"""How right the energy of a window is, beside Zeus."""
