// The ways in which the BLAS keeps a matrix: whole, as a band, or as a packed triangle.
#ifndef SOFTGPU_BLAS_STORED_H_
#define SOFTGPU_BLAS_STORED_H_

#include <algorithm>
#include <cstdint>

#include "softgpu/blas/handle.h"

namespace softgpu::blas {

enum class Part : uint8_t { kAll, kLower, kUpper };
inline Part PartOf(cublasFillMode_t uplo) {
  return uplo == CUBLAS_FILL_MODE_LOWER ? Part::kLower : Part::kUpper;
}
inline bool ValidTriangle(cublasFillMode_t uplo) {
  return uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER;
}
inline bool ValidOp(cublasOperation_t op) {
  return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

struct Stored {
  enum class Form : uint8_t { kWhole, kBand, kPacked } form = Form::kWhole;
  Part part = Part::kAll;
  uint64_t address = 0;
  int64_t rows = 0, cols = 0, ld = 0;
  int64_t below = 0, above = 0;  // diagonals of a band

  static Stored Whole(const void* pointer, int64_t rows, int64_t cols, int64_t ld, Part part = Part::kAll) {
    return {Form::kWhole, part, AddressOf(pointer), rows, cols, ld, 0, 0};
  }
  static Stored Band(const void* pointer, int64_t rows, int64_t cols, int64_t below, int64_t above,
                     int64_t ld, Part part = Part::kAll) {
    return {Form::kBand, part, AddressOf(pointer), rows, cols, ld, below, above};
  }
  // A square matrix with k diagonals beside the main one, of which one triangle is kept.
  static Stored TriangleBand(const void* pointer, int64_t n, int64_t k, int64_t ld, Part part) {
    bool lower = part == Part::kLower;
    return Band(pointer, n, n, lower ? k : 0, lower ? 0 : k, ld, part);
  }
  static Stored Packed(const void* pointer, int64_t n, Part part) {
    return {Form::kPacked, part, AddressOf(pointer), n, n, n, 0, 0};
  }

  // Sizes that contradict each other.
  bool Valid() const {
    if (rows < 0 || cols < 0 || below < 0 || above < 0) return false;
    if (form == Form::kWhole) return ld >= std::max<int64_t>(1, rows);
    return form == Form::kPacked || ld >= below + above + 1;
  }
  int64_t elements() const {
    if (rows == 0 || cols == 0) return 0;
    if (form == Form::kPacked) return rows * (rows + 1) / 2;
    return (cols - 1) * ld + (form == Form::kBand ? below + above + 1 : rows);
  }
  // Rows [begin, end) of column j are kept.
  int64_t begin(int64_t j) const {
    int64_t first = part == Part::kLower ? j : 0;
    return form == Form::kBand ? std::max(first, j - above) : first;
  }
  int64_t end(int64_t j) const {
    int64_t last = part == Part::kUpper ? std::min(rows, j + 1) : rows;
    return form == Form::kBand ? std::min(last, j + below + 1) : last;
  }
  int64_t offset(int64_t i, int64_t j) const {
    if (form == Form::kWhole) return i + j * ld;
    if (form == Form::kBand) return above + i - j + j * ld;
    return part == Part::kLower ? i + (2 * rows - j - 1) * j / 2 : i + j * (j + 1) / 2;
  }

  template <typename Value>
  const Value* Read(native::Device& device) const {
    return static_cast<const Value*>(device.Read(address, static_cast<size_t>(elements()) * sizeof(Value)));
  }
  template <typename Value>
  Value* Write(native::Device& device) const {
    return static_cast<Value*>(device.Write(address, static_cast<size_t>(elements()) * sizeof(Value)));
  }
  // visit(i, j, element) for all that is kept, column by column.
  template <typename Value, typename Visit>
  void ForEach(Value* data, Visit visit) const {
    for (int64_t j = 0; j < cols; j++) {
      for (int64_t i = begin(j); i < end(j); i++) visit(i, j, data[offset(i, j)]);
    }
  }
};

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_STORED_H_
