"""Images that are not RGB of 8 bits: gray, RGBA, of 16 bits. One plain kernel for all, in the same threads."""
