"""The maths of the models, once per device, behind the protocol in `base`."""
