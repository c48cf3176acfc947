// The other one.
__device__ int Twice(int value) { return 2 * value; }
