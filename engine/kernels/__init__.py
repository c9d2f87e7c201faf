"""Triton kernels. Each has a plain torch oracle elsewhere in `engine/`, and is imported only where it is used.

Contract of all of them. What a launch looks like follows from shapes, strides and dtypes and never from a number on the
device, so nothing waits for it and a launch can be captured in a CUDA graph. Tiles are powers of two, whatever block
size, head count and head size are; what a tile has too much of is masked. Sums are fp32 whatever is read.

Triton is there on Linux only. Under TRITON_INTERPRET=1, set before the first import, the same kernels run on CPU
tensors, slowly and except for bfloat16.
"""
