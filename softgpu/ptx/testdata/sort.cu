// A program as users of the parallel algorithms write it: the largest PTX texts come from these.
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

int main() {
  thrust::device_vector<int> values(1000, 3);
  thrust::sort(values.begin(), values.end());
  return thrust::reduce(values.begin(), values.end()) == 3000 ? 0 : 1;
}
