"""The client of servers that speak OpenAI's protocol, and what it measures them with."""
