#include "softgpu/dnn/dnn_testing.h"

#include <cmath>
#include <limits>
#include <type_traits>

namespace softgpu::dnn {

Shape MakeShape(int type, const std::vector<int>& dims, Order order) {
  Shape shape;
  shape.type = type;
  shape.rank = static_cast<int>(dims.size());
  for (int i = 0; i < shape.rank; ++i) shape.dim[i] = dims[i];
  SetPackedStrides(order == Order::kChannelsLast, &shape);
  if (order != Order::kGaps) return shape;
  int stride = 2;
  for (int i = shape.rank - 1; i >= 0; --i) {
    shape.stride[i] = stride;
    stride = stride * dims[i] + 3;
  }
  return shape;
}

void ForEachPlace(const Shape& shape, const std::function<void(const Place&)>& body) {
  Place place(shape.rank, 0);
  for (size_t i = shape.Count(); i > 0; --i) {
    body(place);
    for (int axis = shape.rank - 1; axis >= 0 && ++place[axis] == shape.dim[axis]; --axis) place[axis] = 0;
  }
}

HostTensor::HostTensor(const Shape& shape) : shape_(shape), bytes_(shape.Bytes()) {
  const size_t size = SizeOf(shape.type);
  WithElement(shape.type, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    for (size_t i = 0; i < bytes_.size(); i += size) {
      Store(std::numeric_limits<double>::quiet_NaN(), reinterpret_cast<Element*>(&bytes_[i]));
    }
  });
}

size_t HostTensor::Offset(const Place& place) const {
  size_t offset = 0;
  for (int i = 0; i < shape_.rank; ++i) offset += static_cast<size_t>(place[i]) * shape_.stride[i];
  return offset * SizeOf(shape_.type);
}

double HostTensor::At(const Place& place) const {
  double value = 0;
  WithElement(shape_.type, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    value = Load<double>(*reinterpret_cast<const Element*>(&bytes_[Offset(place)]));
  });
  return value;
}

void HostTensor::Put(const Place& place, double value) {
  WithElement(shape_.type, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    Store(value, reinterpret_cast<Element*>(&bytes_[Offset(place)]));
  });
}

void HostTensor::FillWith(const std::function<double(const Place&)>& value) {
  ForEachPlace(shape_, [&](const Place& place) { Put(place, value(place)); });
}

void HostTensor::Fill(double value) {
  FillWith([value](const Place&) { return value; });
}

void HostTensor::FillRandom(uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  FillWith([&state](const Place&) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<int>((state >> 33) % 129) - 64) / 64.0;
  });
}

double HalfUnit(int type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return 0x1p-53;
    case CUDNN_DATA_FLOAT:
      return 0x1p-24;
    case CUDNN_DATA_HALF:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

double Bound(int type, double terms, double sum, double result) {
  const double compute = type == CUDNN_DATA_DOUBLE ? 0x1p-53 : 0x1p-24;
  const double smallest = type == CUDNN_DATA_HALF ? 0x1p-25 : 1e-40;
  return (terms + 2) * compute * sum + 1.01 * HalfUnit(type) * std::fabs(result) + smallest;
}

std::string NameOf(int type, Order order) {
  const char* name = type == CUDNN_DATA_FLOAT    ? "float"
                     : type == CUDNN_DATA_DOUBLE ? "double"
                     : type == CUDNN_DATA_HALF   ? "half"
                                                 : "bfloat16";
  const char* layout = order == Order::kChannelsFirst  ? " NCHW"
                       : order == Order::kChannelsLast ? " NHWC"
                                                       : " gaps";
  return std::string(name) + layout;
}

}  // namespace softgpu::dnn
