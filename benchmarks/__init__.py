"""How fast the router and the plans are, and the gates they have to meet: `scripts/bench`."""
