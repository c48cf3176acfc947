#include "softgpu/blas/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "softgpu/blas/openblas.h"

namespace softgpu::blas {

namespace {

// Rows, columns and depth of a tile. Products of int8 summed over the depth are exact in f32.
constexpr int64_t kTile = 256;
constexpr size_t kTileElements = kTile * kTile;

// The matrices of one element of the batch, on the device's memory.
struct Views {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  // null: beta is 0
  void* d = nullptr;
};

struct Factors {
  Complex64 alpha, beta;
  float d_scale = 1;
};

struct Region {
  int64_t row, column, rows, columns;
};

// ---- What follows the product.
template <typename Real>
Real Gelu(Real x) {
  return Real(0.5) * x * (1 + std::tanh(Real(0.7978845608028654) * (x + Real(0.044715) * x * x * x)));
}
template <typename Real>
Real GeluGradient(Real x) {
  Real t = std::tanh(Real(0.7978845608028654) * (x + Real(0.044715) * x * x * x));
  Real inner = Real(0.7978845608028654) * (1 + 3 * Real(0.044715) * x * x);
  return Real(0.5) * (1 + t) + Real(0.5) * x * (1 - t * t) * inner;
}

// The epilogue of one element of the batch, column by column.
class Finish {
 public:
  // False after a fault.
  bool Open(const Matmul& p, int64_t batch, float d_scale, native::Device& device) {
    const Epilogue& e = p.epilogue;
    epilogue_ = &e;
    d_scale_ = d_scale;
    int64_t length = e.by_column ? p.n : p.m;
    size_t size = SizeOf(e.bias_type);
    uint64_t offset = static_cast<uint64_t>(batch * e.bias_stride) * size;
    if (e.bias != 0) bias_ = device.Read(e.bias + offset, static_cast<size_t>(length) * size);
    if (e.aux != 0) OpenAux(p, batch, device);
    if (e.amax != 0) amax_ = static_cast<float*>(device.Write(e.amax, sizeof *amax_));
    if (amax_ != nullptr && batch == 0) *amax_ = 0;
    return (e.bias == 0 || bias_ != nullptr) && (e.aux == 0 || aux_ != nullptr) &&
           (e.amax == 0 || amax_ != nullptr);
  }

  bool needed() const {
    return bias_ != nullptr || epilogue_->activation != Activation::kNone || amax_ != nullptr ||
           d_scale_ != 1;
  }

  // `values` are rows first_row ... of column `column` of D.
  template <typename Real>
  void Apply(Real* values, int64_t first_row, int64_t rows, int64_t column) const {
    for (int64_t i = 0; i < rows; i++) {
      int64_t row = first_row + i;
      Real value = values[i];
      if (bias_ != nullptr) {
        int64_t at = epilogue_->by_column ? column : row;
        value += static_cast<Real>(LoadElement(epilogue_->bias_type, bias_, at).real());
      }
      value = Activate(value, row + column * epilogue_->aux_ld);
      if (amax_ != nullptr) *amax_ = std::max(*amax_, static_cast<float>(std::fabs(value)));
      values[i] = value * static_cast<Real>(d_scale_);
    }
  }

 private:
  bool bits() const {
    return epilogue_->activation == Activation::kRelu || epilogue_->activation == Activation::kReluGradient;
  }

  void OpenAux(const Matmul& p, int64_t batch, native::Device& device) {
    const Epilogue& e = p.epilogue;
    int64_t elements = (p.n - 1) * e.aux_ld + p.m, first = batch * e.aux_stride;
    bool reads = e.activation == Activation::kReluGradient || e.activation == Activation::kGeluGradient;
    uint64_t address = e.aux + static_cast<uint64_t>(bits() ? first / 8 : first * Size());
    auto bytes = static_cast<size_t>(bits() ? (elements + 7) / 8 : elements * Size());
    aux_ = reads ? const_cast<void*>(device.Read(address, bytes)) : device.Write(address, bytes);
  }
  int64_t Size() const { return static_cast<int64_t>(SizeOf(epilogue_->aux_type)); }

  template <typename Real>
  Real Activate(Real x, int64_t at) const {
    switch (epilogue_->activation) {
      case Activation::kNone:
        return x;
      case Activation::kRelu:
        if (aux_ != nullptr) SetBit(at, x > 0);
        return x > 0 ? x : 0;
      case Activation::kGelu:
        if (aux_ != nullptr) StoreElement(epilogue_->aux_type, aux_, at, x);
        return Gelu(x);
      case Activation::kReluGradient:
        return Bit(at) ? x : 0;
      case Activation::kGeluGradient:
        return x * GeluGradient(static_cast<Real>(LoadElement(epilogue_->aux_type, aux_, at).real()));
    }
    return x;
  }
  bool Bit(int64_t at) const { return (static_cast<const uint8_t*>(aux_)[at / 8] >> (at % 8) & 1) != 0; }
  void SetBit(int64_t at, bool on) const {
    uint8_t& byte = static_cast<uint8_t*>(aux_)[at / 8];
    auto mask = static_cast<uint8_t>(1u << (at % 8));
    byte = on ? byte | mask : byte & static_cast<uint8_t>(~mask);
  }

  const Epilogue* epilogue_ = nullptr;
  const void* bias_ = nullptr;
  void* aux_ = nullptr;
  float* amax_ = nullptr;
  float d_scale_ = 1;
};

// ---- The types that OpenBLAS has.
template <typename Value>
void ScaleInto(const Matmul& p, const Value* c, Value beta, Value* d) {
  for (int64_t j = 0; j < p.n; j++) {
    for (int64_t i = 0; i < p.m; i++) d[i + j * p.d.ld] = c == nullptr ? Value(0) : beta * c[i + j * p.c.ld];
  }
}

template <typename Value>
void Multiply(const Matmul& p, const Views& views, const Factors& factors, const Finish& finish) {
  Value alpha, beta;
  if constexpr (kIsComplex<Value>) {
    alpha = Value(factors.alpha);
    beta = Value(factors.beta);
  } else {
    alpha = static_cast<Value>(factors.alpha.real());
    beta = static_cast<Value>(factors.beta.real());
  }
  const auto* c = static_cast<const Value*>(views.c);
  auto* d = static_cast<Value*>(views.d);
  if (p.k == 0 || alpha == Value(0)) {
    ScaleInto(p, c, beta, d);
  } else {
    if (c != nullptr && (c != d || p.c.ld != p.d.ld)) ScaleInto(p, c, Value(1), d);
    Gemm(TransOf(p.a.transpose, p.a.conjugate), TransOf(p.b.transpose, p.b.conjugate), static_cast<int>(p.m),
         static_cast<int>(p.n), static_cast<int>(p.k), alpha, static_cast<const Value*>(views.a),
         static_cast<int>(p.a.matrix.ld), static_cast<const Value*>(views.b), static_cast<int>(p.b.matrix.ld),
         beta, d, static_cast<int>(p.d.ld));
  }
  if constexpr (!kIsComplex<Value>) {
    if (!finish.needed()) return;
    for (int64_t j = 0; j < p.n; j++) finish.Apply(d + j * p.d.ld, 0, p.m, j);
  }
}

// ---- All other types, in tiles.
// op(matrix)[row ...][column ...] as f32, column-major without gaps.
void ConvertTile(const Operand& operand, const void* data, const Region& at, float* out) {
  const int64_t ld = operand.matrix.ld;
  const int64_t down = operand.transpose ? ld : 1, across = operand.transpose ? 1 : ld;
  WithStorage(operand.matrix.type, [&]<typename S>(S) {
    const auto* from = static_cast<const typename S::Type*>(data) + at.row * down + at.column * across;
    for (int64_t j = 0; j < at.columns; j++) {
      for (int64_t i = 0; i < at.rows; i++) out[i + j * at.rows] = S::Load(from[i * down + j * across]);
    }
  });
}

class TileProduct {
 public:
  TileProduct(const Matmul& matmul, void* scratch)
      : p_(matmul),
        a_(static_cast<float*>(scratch)),
        b_(a_ + kTileElements),
        sum_(b_ + kTileElements),
        exact_(reinterpret_cast<uint32_t*>(sum_ + kTileElements)) {}

  bool integers() const { return p_.a.matrix.type == CUDA_R_8I; }

  // op(A) * op(B) in the rows and columns of `tile`.
  void Compute(const Views& views, const Region& tile) {
    auto elements = static_cast<size_t>(tile.rows * tile.columns);
    std::fill_n(sum_, elements, 0.0f);
    if (integers()) std::fill_n(exact_, elements, 0u);
    for (int64_t k = 0; k < p_.k; k += kTile) {
      int64_t depth = std::min(kTile, p_.k - k);
      ConvertTile(p_.a, views.a, {tile.row, k, tile.rows, depth}, a_);
      ConvertTile(p_.b, views.b, {k, tile.column, depth, tile.columns}, b_);
      Gemm(CblasNoTrans, CblasNoTrans, static_cast<int>(tile.rows), static_cast<int>(tile.columns),
           static_cast<int>(depth), 1.0f, a_, static_cast<int>(tile.rows), b_, static_cast<int>(depth),
           integers() ? 0.0f : 1.0f, sum_, static_cast<int>(tile.rows));
      // Sums of integers wrap around.
      for (size_t i = 0; integers() && i < elements; i++)
        exact_[i] += static_cast<uint32_t>(static_cast<int32_t>(sum_[i]));
    }
  }

  int32_t Exact(int64_t at) const { return static_cast<int32_t>(exact_[at]); }
  float Sum(int64_t at) const { return integers() ? static_cast<float>(Exact(at)) : sum_[at]; }

 private:
  const Matmul& p_;
  float* a_;
  float* b_;
  float* sum_;
  uint32_t* exact_;
};

void StoreIntegers(const Matmul& p, const Views& views, const Factors& factors, const TileProduct& product,
                   const Region& tile) {
  auto alpha = static_cast<uint32_t>(static_cast<int64_t>(factors.alpha.real()));
  auto beta = static_cast<uint32_t>(static_cast<int64_t>(factors.beta.real()));
  for (int64_t j = 0; j < tile.columns; j++) {
    for (int64_t i = 0; i < tile.rows; i++) {
      uint32_t value = alpha * static_cast<uint32_t>(product.Exact(i + j * tile.rows));
      if (views.c != nullptr) {
        value += beta * static_cast<const uint32_t*>(views.c)[tile.row + i + (tile.column + j) * p.c.ld];
      }
      static_cast<uint32_t*>(views.d)[tile.row + i + (tile.column + j) * p.d.ld] = value;
    }
  }
}

void StoreTile(const Matmul& p, const Views& views, const Factors& factors, const TileProduct& product,
               const Finish& finish, const Region& tile) {
  const auto alpha = static_cast<float>(factors.alpha.real()), beta = static_cast<float>(factors.beta.real());
  float values[kTile];
  for (int64_t j = 0; j < tile.columns; j++) {
    int64_t column = tile.column + j;
    for (int64_t i = 0; i < tile.rows; i++) values[i] = alpha * product.Sum(i + j * tile.rows);
    if (views.c != nullptr) {
      WithStorage(p.c.type, [&]<typename S>(S) {
        const auto* c = static_cast<const typename S::Type*>(views.c) + tile.row + column * p.c.ld;
        for (int64_t i = 0; i < tile.rows; i++) values[i] += beta * S::Load(c[i]);
      });
    }
    if (finish.needed()) finish.Apply(values, tile.row, tile.rows, column);
    WithStorage(p.d.type, [&]<typename S>(S) {
      auto* d = static_cast<typename S::Type*>(views.d) + tile.row + column * p.d.ld;
      for (int64_t i = 0; i < tile.rows; i++) d[i] = S::Store(values[i]);
    });
  }
}

void MultiplyInTiles(const Matmul& p, const Views& views, const Factors& factors, const Finish& finish,
                     void* scratch) {
  TileProduct product(p, scratch);
  for (int64_t column = 0; column < p.n; column += kTile) {
    for (int64_t row = 0; row < p.m; row += kTile) {
      Region tile{row, column, std::min(kTile, p.m - row), std::min(kTile, p.n - column)};
      product.Compute(views, tile);
      if (p.scale_type == CUDA_R_32I) {
        StoreIntegers(p, views, factors, product, tile);
      } else {
        StoreTile(p, views, factors, product, finish, tile);
      }
    }
  }
}

// ---- Sums of a matrix along one index, for the gradients of biases.
bool SumAlong(native::Device& device, uint64_t address, const Epilogue& e, int64_t batch, const void* data,
              cudaDataType type, int64_t length, int64_t step, int64_t terms, int64_t term_step) {
  if (address == 0) return true;
  size_t size = SizeOf(e.bias_type);
  void* out = device.Write(address + static_cast<uint64_t>(batch * e.bias_stride) * size,
                           static_cast<size_t>(length) * size);
  if (out == nullptr) return false;
  for (int64_t i = 0; i < length; i++) {
    Complex64 sum = 0;
    for (int64_t t = 0; t < terms; t++) sum += LoadElement(type, data, i * step + t * term_step);
    StoreElement(e.bias_type, out, i, sum);
  }
  return true;
}

bool SumGradients(const Matmul& p, const Views& views, int64_t batch, native::Device& device) {
  const Epilogue& e = p.epilogue;
  int64_t length = e.by_column ? p.n : p.m, terms = e.by_column ? p.m : p.n;
  int64_t step = e.by_column ? p.d.ld : 1, term_step = e.by_column ? 1 : p.d.ld;
  int64_t a_ld = p.a.matrix.ld, b_ld = p.b.matrix.ld;
  bool at = p.a.transpose, bt = p.b.transpose;
  return SumAlong(device, e.gradient_of_d, e, batch, views.d, p.d.type, length, step, terms, term_step) &&
         SumAlong(device, e.gradient_of_a, e, batch, views.a, p.a.matrix.type, p.m, at ? a_ld : 1, p.k,
                  at ? 1 : a_ld) &&
         SumAlong(device, e.gradient_of_b, e, batch, views.b, p.b.matrix.type, p.n, bt ? 1 : b_ld, p.k,
                  bt ? b_ld : 1);
}

// ---- Finding the operands.
// False after a fault.
bool AddressOf(const Matrix& matrix, int64_t batch, native::Device& device, uint64_t* address) {
  if (!matrix.pointers) {
    *address = matrix.address + static_cast<uint64_t>(batch * matrix.stride) * SizeOf(matrix.type);
    return true;
  }
  const void* entry =
      device.Read(matrix.address + static_cast<uint64_t>(batch) * sizeof *address, sizeof *address);
  if (entry == nullptr) return false;
  std::memcpy(address, entry, sizeof *address);
  return true;
}

bool Find(const Matrix& matrix, int64_t rows, int64_t cols, int64_t batch, native::Device& device,
          const void** data) {
  uint64_t address = 0;
  if (!AddressOf(matrix, batch, device, &address)) return false;
  *data = device.Read(address, SpanBytes(rows, cols, matrix.ld, matrix.type));
  return *data != nullptr;
}

bool FindAll(const Matmul& p, const Factors& factors, int64_t batch, native::Device& device, Views* views) {
  const Operand &a = p.a, &b = p.b;
  bool product = factors.alpha != Complex64(0);
  if (product &&
      !(Find(a.matrix, a.transpose ? p.k : p.m, a.transpose ? p.m : p.k, batch, device, &views->a) &&
        Find(b.matrix, b.transpose ? p.n : p.k, b.transpose ? p.k : p.n, batch, device, &views->b))) {
    return false;
  }
  if (factors.beta != Complex64(0) && !Find(p.c, p.m, p.n, batch, device, &views->c)) return false;
  uint64_t address = 0;
  if (!AddressOf(p.d, batch, device, &address)) return false;
  views->d = device.Write(address, SpanBytes(p.m, p.n, p.d.ld, p.d.type));
  return views->d != nullptr;
}

bool LoadScale(uint64_t address, native::Device& device, float* factor) {
  if (address == 0) return true;
  const void* value = device.Read(address, sizeof *factor);
  if (value != nullptr) std::memcpy(factor, value, sizeof *factor);
  return value != nullptr;
}

bool LoadFactors(const Matmul& p, native::Device& device, Factors* factors) {
  float a = 1, b = 1, c = 1;
  if (!LoadScalar(p.alpha, p.scale_type, device, &factors->alpha) ||
      !LoadScalar(p.beta, p.scale_type, device, &factors->beta) ||
      !LoadScale(p.epilogue.a_scale, device, &a) || !LoadScale(p.epilogue.b_scale, device, &b) ||
      !LoadScale(p.epilogue.c_scale, device, &c) ||
      !LoadScale(p.epilogue.d_scale, device, &factors->d_scale)) {
    return false;
  }
  factors->alpha *= a * b;
  factors->beta *= c;
  return true;
}

void MultiplyNative(const Matmul& p, const Views& views, const Factors& factors, const Finish& finish) {
  switch (p.a.matrix.type) {
    case CUDA_R_32F:
      return Multiply<float>(p, views, factors, finish);
    case CUDA_R_64F:
      return Multiply<double>(p, views, factors, finish);
    case CUDA_C_32F:
      return Multiply<Complex32>(p, views, factors, finish);
    default:
      return Multiply<Complex64>(p, views, factors, finish);
  }
}

bool Narrow(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

bool FitsSingle(cudaDataType a, cudaDataType b, cudaDataType c, cudaDataType d) {
  if (Narrow(a) && Narrow(b)) {
    bool plain = c == CUDA_R_16F || c == CUDA_R_16BF || c == CUDA_R_32F;
    return plain && (d == c || (Narrow(d) && c != CUDA_R_32F));
  }
  if (a != b || c != d) return false;
  switch (a) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return c == a || c == CUDA_R_32F;
    case CUDA_R_8I:
      return c == CUDA_R_32F;
    case CUDA_R_32F:
    case CUDA_C_32F:
      return c == a;
    default:
      return false;
  }
}

}  // namespace

bool TypesFit(const Matmul& p, cublasComputeType_t compute) {
  cudaDataType a = p.a.matrix.type, b = p.b.matrix.type, c = p.c.type, d = p.d.type, s = p.scale_type;
  bool same = a == b && c == d;
  switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return same && a == CUDA_R_16F && c == a && s == a;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
      return FitsSingle(a, b, c, d) && s == (IsComplex(a) ? CUDA_C_32F : CUDA_R_32F);
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
      return same && c == a && s == a && (a == CUDA_R_64F || a == CUDA_C_64F);
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      return same && a == CUDA_R_8I &&
             ((c == CUDA_R_32I && s == CUDA_R_32I) || (c == CUDA_R_8I && s == CUDA_R_32F));
    default:
      return false;
  }
}

bool UsesWorkspace(const Matmul& p) {
  switch (p.a.matrix.type) {
    case CUDA_R_32F:
    case CUDA_R_64F:
    case CUDA_C_32F:
    case CUDA_C_64F:
      return false;
    default:
      return true;
  }
}

size_t MatmulWorkspaceBytes() { return 4 * kTileElements * sizeof(float); }

bool LoadScalar(const Scalar& scalar, cudaDataType type, native::Device& device, Complex64* value) {
  const void* at = scalar.bits;
  if (scalar.address != 0) at = device.Read(scalar.address, SizeOf(type));
  if (at == nullptr) return false;
  alignas(16) unsigned char copy[16];
  std::memcpy(copy, at, SizeOf(type));
  *value = LoadElement(type, copy, 0);
  return true;
}

void RunMatmul(const Matmul& p, native::Device& device) {
  Factors factors;
  if (p.m == 0 || p.n == 0 || !LoadFactors(p, device, &factors)) return;
  bool tiles = UsesWorkspace(p);
  // Left out of the product when A and B are not to be read.
  Matmul scaled = p;
  if (factors.alpha == Complex64(0)) scaled.k = 0;
  Scratch scratch(device, p.workspace, tiles ? MatmulWorkspaceBytes() : 0);
  if (scratch.data() == nullptr) return;
  for (int64_t batch = 0; batch < p.batches; batch++) {
    Views views;
    Finish finish;
    if (!FindAll(p, factors, batch, device, &views) || !finish.Open(p, batch, factors.d_scale, device))
      return;
    if (tiles) {
      MultiplyInTiles(scaled, views, factors, finish, scratch.data());
    } else {
      MultiplyNative(scaled, views, factors, finish);
    }
    if (!SumGradients(scaled, views, batch, device)) return;
  }
}

}  // namespace softgpu::blas
