"""Arrays of any library, row blocks, weighted sums, compiled kernels, Newton's method."""
