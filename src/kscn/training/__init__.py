"""Loops over batches: what turns the mathematics into a fit on data of any size."""
