"""The load client: worker processes, sockets, the kernel's time stamps, and the client's check of itself."""
