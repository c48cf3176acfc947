// Tensors of tests: any type and layout, with elements read and written as doubles by their place.
#ifndef SOFTGPU_DNN_DNN_TESTING_H_
#define SOFTGPU_DNN_DNN_TESTING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "softgpu/dnn/tensor.h"

namespace softgpu::dnn {

enum class Order { kChannelsFirst, kChannelsLast, kGaps };

// A shape of these dimensions. kGaps: packed channels-first rows, each dimension with room to spare.
Shape MakeShape(int type, const std::vector<int>& dims, Order order = Order::kChannelsFirst);

using Place = std::vector<int>;

class HostTensor {
 public:
  // Every element is a NaN, also what lies in gaps.
  explicit HostTensor(const Shape& shape);

  const Shape& shape() const { return shape_; }
  double At(const Place& place) const;
  void Put(const Place& place, double value);
  // Multiples of 1/64 in [-1, 1], exact in every type; the seed says which.
  void FillRandom(uint64_t seed);
  void Fill(double value);
  void FillWith(const std::function<double(const Place&)>& value);

  Source AsSource() const { return {shape_, bytes_.data()}; }
  Target AsTarget() { return {shape_, bytes_.data()}; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::vector<uint8_t>* mutable_bytes() { return &bytes_; }

 private:
  size_t Offset(const Place& place) const;

  Shape shape_;
  std::vector<uint8_t> bytes_;
};

// Calls body(place) for each element of the shape in order.
void ForEachPlace(const Shape& shape, const std::function<void(const Place&)>& body);

// Half a unit in the last place of values of this type, relative.
double HalfUnit(int type);

// What arithmetic in the type that `type` is computed in may be off by: `terms` roundings of values of
// magnitude `sum`, and the rounding of the result.
double Bound(int type, double terms, double sum, double result);

std::string NameOf(int type, Order order);

inline constexpr int kTypes[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
inline constexpr Order kOrders[] = {Order::kChannelsFirst, Order::kChannelsLast, Order::kGaps};

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_DNN_TESTING_H_
