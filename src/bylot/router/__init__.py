"""In-memory routers: the core that decides and learns, the public Router, its status and files."""
