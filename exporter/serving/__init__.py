"""HTTP/1.1 server on its own thread, with limits on connections, time and memory."""
