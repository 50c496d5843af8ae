"""An inference server in virtual time: what it schedules, how long that takes, and what power it draws."""
