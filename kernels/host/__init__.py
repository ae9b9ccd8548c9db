"""The simulator: kernels compiled by g++ and run on a CPU, one fiber for each CUDA thread.

See README.md beside this file, and docs/kernels-on-a-cpu.md for what it can and cannot show.
"""
