"""Fitted models for other programs: one ONNX graph from samples to clusters."""
