"""The endpoint beside other gateways, before the same scripted model server."""
