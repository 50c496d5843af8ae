"""A GPU and the server on it, as arithmetic: how long steps take, what power they draw, who is served when.

Nothing here knows of engines, sensors or pytest: the simulated engine and the simulated board are made of it.
"""
