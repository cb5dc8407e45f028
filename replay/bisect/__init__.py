"""Which decisions are to blame: the smallest set of them whose forcing makes a failure go away."""
