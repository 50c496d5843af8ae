"""How often the gate is wrong, beside others on the same samples."""
