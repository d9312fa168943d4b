"""Train the same network with gpubeton and with Pillow, and compare."""
