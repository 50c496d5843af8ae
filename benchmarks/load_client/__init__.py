"""How exactly load generators time a server whose send times are known."""
