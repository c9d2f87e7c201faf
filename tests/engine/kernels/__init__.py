"""What test_kernels.py runs in processes of their own: under Triton's interpreter, and through its compiler."""
