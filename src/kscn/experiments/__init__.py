"""The paper's tables as data, and the runner that measures ours beside them."""
