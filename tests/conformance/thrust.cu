// Algorithms of Thrust and CUB on the device against the standard library's on the host: their kernels are full of inline
// assembly, look-back between blocks, and occupancy queries.
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <numeric>

#include "check.h"

using namespace check;

std::vector<int> Input(size_t count, unsigned seed, unsigned bound) {
  std::mt19937 random(seed);
  std::vector<int> values(count);
  for (int& value : values) value = static_cast<int>(random() % bound) - static_cast<int>(bound / 2);
  return values;
}

template <typename T>
std::vector<T> Host(const thrust::device_vector<T>& device) {
  std::vector<T> values(device.size());
  thrust::copy(device.begin(), device.end(), values.begin());
  return values;
}

void CheckSort(size_t count) {
  std::vector<int> values = Input(count, 1, 1u << 30);
  thrust::device_vector<int> device(values.begin(), values.end());
  thrust::sort(device.begin(), device.end());
  std::sort(values.begin(), values.end());
  Report(Host(device) == values, "sort", std::to_string(count));
}

void CheckScan(size_t count) {
  std::vector<int> values = Input(count, 2, 1000);
  thrust::device_vector<int> device(values.begin(), values.end());
  thrust::inclusive_scan(device.begin(), device.end(), device.begin());
  std::partial_sum(values.begin(), values.end(), values.begin());
  Report(Host(device) == values, "inclusive_scan", std::to_string(count));
}

void CheckReduce(size_t count) {
  std::vector<int> values = Input(count, 3, 5000);
  thrust::device_vector<int> device(values.begin(), values.end());
  Same("reduce", thrust::reduce(device.begin(), device.end(), 0), std::accumulate(values.begin(), values.end(), 0));
  Same("maximum", thrust::reduce(device.begin(), device.end(), -100000, thrust::maximum<int>()),
       *std::max_element(values.begin(), values.end()));
}

void CheckUnique(size_t count) {
  std::vector<int> values = Input(count, 4, 7);
  thrust::device_vector<int> device(values.begin(), values.end());
  device.erase(thrust::unique(device.begin(), device.end()), device.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  Report(Host(device) == values, "unique", std::to_string(count));
}

int main() {
  for (size_t count : {1u, 1000u, 40000u}) {
    CheckSort(count);
    CheckScan(count);
    CheckReduce(count);
    CheckUnique(count);
  }
  return Finish("thrust");
}
