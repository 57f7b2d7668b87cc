"""What travels between workers and ps: packed, narrow, overlapped, or only the rows in use."""
