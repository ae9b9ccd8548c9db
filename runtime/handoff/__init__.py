"""Where a pair goes that outgrows one GPU: vLLM with our refusals in it, or Ray with our engine."""
