"""A shop: inventory, payment and shipping as one saga."""
