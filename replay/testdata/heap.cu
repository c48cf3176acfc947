// Takes memory of the driver's own heap.
extern "C" __global__ void take(void** out) { *out = malloc(16); }
