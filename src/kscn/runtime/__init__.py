"""What a fit runs on: devices, processes, samples in blocks and batches, saved states."""
