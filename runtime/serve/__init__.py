"""The OpenAI-compatible service over an engine: `dspark.runtime.create_app` and `dspark serve`."""
