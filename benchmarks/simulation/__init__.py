"""How near the simulated boards come to real ones: the points measured, the fit, the errors."""
