"""The bytes of files: on this machine, and in object stores."""
