"""JAX as a road of its own: forwards written for it, and its derivatives of them."""
