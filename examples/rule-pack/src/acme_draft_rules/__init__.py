"""Which drafts Acme serves: drafts.yaml, the rule pack `acme`. There is no code in this package."""
