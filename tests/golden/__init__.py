"""Numbers of other libraries that lbzoo is held to, and the scripts that recorded them."""
