"""The engine: compiles pipelines into outputs, plans the batches of an epoch, loads their bytes, and makes them."""
