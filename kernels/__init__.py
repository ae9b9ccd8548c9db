"""CUDA C++ sources of the runtime's operations, shipped as data and compiled at first use.

Only `dspark.runtime` may import this package. A launch begins at `launch.Device`.
"""
