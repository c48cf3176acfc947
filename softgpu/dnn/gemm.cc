// Compiled once for each level of the instruction set, in namespace SOFTGPU_DNN_ISA.
//
// c is cut into tiles that are summed in registers. a and b are copied into panels as the tiles read them,
// the ends filled up with zeros that no result sees.
#include "softgpu/dnn/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace softgpu::dnn::SOFTGPU_DNN_ISA {
namespace {

#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
  typedef float InMemory __attribute__((vector_size(kVectorBytes), aligned(sizeof(float)), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
  typedef double InMemory __attribute__((vector_size(kVectorBytes), aligned(sizeof(double)), may_alias));
};

constexpr size_t kTileRows = 6;
constexpr size_t kTileVectors = 2;
template <typename T>
constexpr size_t kTileColumns = kTileVectors* kVectorBytes / sizeof(T);

constexpr size_t kInnerBlock = 256;
constexpr size_t kColumnBlock = 512;  // a multiple of every kTileColumns

// panel[k][row] of `rows` rows, at most kTileRows.
template <typename T>
void PackLeft(MatrixView<T> a, size_t rows, size_t inner, T* panel) {
  for (size_t row = 0; row < kTileRows; ++row) {
    const T* from = a.data + row * a.row;
    for (size_t k = 0; k < inner; ++k) panel[k * kTileRows + row] = row < rows ? from[k * a.column] : T(0);
  }
}

// panel[k][column] of `columns` columns, at most kTileColumns.
template <typename T>
void PackRight(MatrixView<T> b, size_t columns, size_t inner, T* panel) {
  constexpr size_t kWidth = kTileColumns<T>;
  if (b.column == 1) {
    for (size_t k = 0; k < inner; ++k, panel += kWidth) {
      std::memcpy(panel, b.data + k * b.row, columns * sizeof(T));
      if (columns < kWidth) std::memset(panel + columns, 0, (kWidth - columns) * sizeof(T));
    }
    return;
  }
  for (size_t column = 0; column < kWidth; ++column) {
    const T* from = b.data + column * b.column;
    for (size_t k = 0; k < inner; ++k) panel[k * kWidth + column] = column < columns ? from[k * b.row] : T(0);
  }
}

// A whole tile of c, rows `c_row` apart.
template <typename T>
void Tile(size_t inner, const T* left, const T* right, T* c, size_t c_row, bool accumulate) {
  using Vector = typename VectorOf<T>::Type;
  using InMemory = typename VectorOf<T>::InMemory;
  constexpr size_t kLanes = sizeof(Vector) / sizeof(T);
  Vector sums[kTileRows][kTileVectors] = {};
  for (size_t i = 0; accumulate && i < kTileRows; ++i) {
    for (size_t j = 0; j < kTileVectors; ++j) {
      sums[i][j] = *reinterpret_cast<const InMemory*>(c + i * c_row + j * kLanes);
    }
  }
  for (size_t k = 0; k < inner; ++k, left += kTileRows, right += kTileColumns<T>) {
    const Vector first = *reinterpret_cast<const InMemory*>(right);
    const Vector second = *reinterpret_cast<const InMemory*>(right + kLanes);
#pragma GCC unroll 6
    for (size_t i = 0; i < kTileRows; ++i) {
      const Vector row = left[i] - Vector{};  // in all lanes
      sums[i][0] += row * first;
      sums[i][1] += row * second;
    }
  }
  for (size_t i = 0; i < kTileRows; ++i) {
    for (size_t j = 0; j < kTileVectors; ++j) {
      *reinterpret_cast<InMemory*>(c + i * c_row + j * kLanes) = sums[i][j];
    }
  }
}

// A tile of which only a part is in c.
template <typename T>
void PartialTile(size_t rows, size_t columns, size_t inner, const T* left, const T* right, T* c, size_t c_row,
                 bool accumulate) {
  T whole[kTileRows * kTileColumns<T>] = {};
  if (accumulate) {
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(whole + i * kTileColumns<T>, c + i * c_row, columns * sizeof(T));
    }
  }
  Tile(inner, left, right, whole, kTileColumns<T>, accumulate);
  for (size_t i = 0; i < rows; ++i) {
    std::memcpy(c + i * c_row, whole + i * kTileColumns<T>, columns * sizeof(T));
  }
}

template <typename T>
struct Panels {
  Panels(size_t columns, size_t inner) {
    columns = std::min(columns, kColumnBlock) + kTileColumns<T>;
    inner = std::min(inner, kInnerBlock);
    left = static_cast<T*>(std::malloc(kTileRows * inner * sizeof(T) + 1));
    right = static_cast<T*>(std::malloc(columns * inner * sizeof(T) + 1));
    if (left == nullptr || right == nullptr) std::abort();
  }
  Panels(const Panels&) = delete;
  Panels& operator=(const Panels&) = delete;
  ~Panels() {
    std::free(left);
    std::free(right);
  }

  T* left;
  T* right;
};

// One block of the inner index and of the columns: all tiles of it.
template <typename T>
void Block(size_t m, size_t n, size_t inner, MatrixView<T> a, MatrixView<T> b, T* c, size_t c_row,
           bool accumulate, const Panels<T>& panels) {
  for (size_t j = 0; j < n; j += kTileColumns<T>) {
    PackRight<T>({b.data + j * b.column, b.row, b.column}, std::min(kTileColumns<T>, n - j), inner,
                 panels.right + j * inner);
  }
  for (size_t i = 0; i < m; i += kTileRows) {
    const size_t rows = std::min(kTileRows, m - i);
    PackLeft<T>({a.data + i * a.row, a.row, a.column}, rows, inner, panels.left);
    for (size_t j = 0; j < n; j += kTileColumns<T>) {
      const size_t columns = std::min(kTileColumns<T>, n - j);
      const T* right = panels.right + j * inner;
      T* tile = c + i * c_row + j;
      if (rows == kTileRows && columns == kTileColumns<T>) {
        Tile(inner, panels.left, right, tile, c_row, accumulate);
      } else {
        PartialTile(rows, columns, inner, panels.left, right, tile, c_row, accumulate);
      }
    }
  }
}

}  // namespace

template <typename T>
void Gemm(size_t m, size_t n, size_t k, MatrixView<T> a, MatrixView<T> b, T* c, size_t c_row,
          bool accumulate) {
  if (k == 0 && !accumulate) {
    for (size_t i = 0; i < m; ++i) std::fill_n(c + i * c_row, n, T(0));
  }
  const Panels<T> panels(n, k);
  for (size_t j = 0; j < n; j += kColumnBlock) {
    for (size_t p = 0; p < k; p += kInnerBlock) {
      Block<T>(m, std::min(kColumnBlock, n - j), std::min(kInnerBlock, k - p),
               {a.data + p * a.column, a.row, a.column}, {b.data + p * b.row + j * b.column, b.row, b.column},
               c + j, c_row, accumulate || p > 0, panels);
    }
  }
}

template void Gemm(size_t, size_t, size_t, MatrixView<float>, MatrixView<float>, float*, size_t, bool);
template void Gemm(size_t, size_t, size_t, MatrixView<double>, MatrixView<double>, double*, size_t, bool);

}  // namespace softgpu::dnn::SOFTGPU_DNN_ISA
