"""The target and the draft, written over the operations of a backend."""
