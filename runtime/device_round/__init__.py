"""A round that runs on the device as a whole: drafts, verification, acceptance and rollback."""
