"""Batch: the unfused executor, whole batches at a time: arrays with Numba, tensors of any device with torch."""
