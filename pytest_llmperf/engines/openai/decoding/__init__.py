"""After the load: the bytes of an answer, with their times, become HTTP, events and tokens."""
