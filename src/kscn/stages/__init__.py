"""The steps of a fit, and the driver that runs them."""
