"""Where each op lives: the device setter, its strategies, local variables, the load table."""
