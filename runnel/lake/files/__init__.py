"""Files in the lake: put, get, ls and remove over tables of paths and contents."""
