// The rotations that make an element zero: scalars alone. Written from the BLAS's definition.
#ifndef SOFTGPU_BLAS_ROTATIONS_H_
#define SOFTGPU_BLAS_ROTATIONS_H_

#include <cmath>

#include "softgpu/blas/vector.h"

namespace softgpu::blas {

// r and z replace a and b; c * a + s * b = r.
template <typename R>
void MakeRotation(R* a, R* b, R* c, R* s) {
  R scale = std::fabs(*a) + std::fabs(*b);
  if (scale == 0) {
    *c = 1;
    *s = *a = *b = 0;
    return;
  }
  R sign = std::fabs(*a) > std::fabs(*b) ? *a : *b;
  R r = std::copysign(scale * std::sqrt((*a / scale) * (*a / scale) + (*b / scale) * (*b / scale)), sign);
  *c = *a / r;
  *s = *b / r;
  R z = 1;
  if (std::fabs(*a) > std::fabs(*b)) {
    z = *s;
  } else if (*c != 0) {
    z = 1 / *c;
  }
  *a = r;
  *b = z;
}
template <typename R>
void MakeRotation(std::complex<R>* a, std::complex<R>* b, R* c, std::complex<R>* s) {
  R length = std::abs(*a);
  if (length == 0) {
    *c = 0;
    *s = 1;
    *a = *b;
    return;
  }
  R norm = std::hypot(length, std::abs(*b));
  std::complex<R> phase = *a / length;
  *c = length / norm;
  *s = phase * std::conj(*b) / norm;
  *a = phase * norm;
}

// Of rotmg: the weights d1, d2 and the pair (x1, y1); `param` gets flag, h11, h21, h12, h22.
template <typename R>
class ModifiedRotation {
 public:
  ModifiedRotation(R* d1, R* d2, R* x1, R y1) : d1_(*d1), d2_(*d2), x1_(*x1), y1_(y1) {}
  void Make(R* param) {
    if (d1_ < 0) {
      Clear();
    } else if (R p2 = d2_ * y1_; p2 == 0) {
      param[0] = -2;
      return;
    } else {
      Rotate(p2);
    }
    param[0] = flag_;
    if (flag_ != 0) param[1] = h11_;
    if (flag_ != 1) param[2] = h21_;
    if (flag_ != 1) param[3] = h12_;
    if (flag_ != 0) param[4] = h22_;
  }

 private:
  static constexpr R kGamma = 4096;

  void Clear() {
    flag_ = -1;
    h11_ = h12_ = h21_ = h22_ = 0;
    d1_ = d2_ = x1_ = 0;
  }
  void Rotate(R p2) {
    R p1 = d1_ * x1_, q2 = p2 * y1_, q1 = p1 * x1_;
    if (std::fabs(q1) > std::fabs(q2)) {
      h21_ = -y1_ / x1_;
      h12_ = p2 / p1;
      R u = 1 - h12_ * h21_;
      if (u <= 0) return Clear();
      flag_ = 0;
      d1_ /= u;
      d2_ /= u;
      x1_ *= u;
    } else if (q2 < 0) {
      return Clear();
    } else {
      flag_ = 1;
      h11_ = p1 / p2;
      h22_ = x1_ / y1_;
      R u = 1 + h11_ * h22_, d1 = d1_;
      d1_ = d2_ / u;
      d2_ = d1 / u;
      x1_ = y1_ * u;
    }
    Rescale(&d1_, true);
    Rescale(&d2_, false);
  }
  // Keeps a weight within what the squares of numbers can be.
  void Rescale(R* d, bool first) {
    constexpr R kSquare = kGamma * kGamma;
    while (*d != 0 && (std::fabs(*d) <= 1 / kSquare || std::fabs(*d) >= kSquare)) {
      Explicit();
      bool small = std::fabs(*d) <= 1 / kSquare;
      R by = small ? kGamma : 1 / kGamma;
      *d *= by * by;
      if (first) x1_ /= by;
      (first ? h11_ : h21_) /= by;
      (first ? h12_ : h22_) /= by;
    }
  }
  // From a form with implied ones to one with all four elements.
  void Explicit() {
    if (flag_ == 0) {
      h11_ = h22_ = 1;
    } else if (flag_ == 1) {
      h21_ = -1;
      h12_ = 1;
    }
    flag_ = -1;
  }

  R &d1_, &d2_, &x1_;
  const R y1_;
  R flag_ = -1, h11_ = 0, h21_ = 0, h12_ = 0, h22_ = 0;
};

// On the host at once, or on the device in order, as the pointer mode says. `work` gets the pointers.
template <typename Work, typename... Pointees>
cublasStatus_t OnScalars(cublasHandle_t handle, const Work& work, Pointees*... pointers) {
  Call call(handle);
  if (!call.ok()) return call.status();
  if ((... || (pointers == nullptr))) return CUBLAS_STATUS_INVALID_VALUE;
  if (call.handle().pointer_mode == CUBLAS_POINTER_MODE_HOST) {
    work(pointers...);
    return CUBLAS_STATUS_SUCCESS;
  }
  return call.Run([work, pointers...](native::Device& device) {
    auto writable = [&device](auto* pointer) { return device.Write(AddressOf(pointer), sizeof *pointer); };
    if ((... && (writable(pointers) != nullptr))) work(pointers...);
  });
}

template <typename T>
cublasStatus_t Rotg(cublasHandle_t handle, T* a, T* b, RealOf<T>* c, T* s) {
  using V = ValueOf<T>;
  return OnScalars(
      handle, [](V* x, V* y, RealOf<T>* cos, V* sin) { MakeRotation(x, y, cos, sin); },
      reinterpret_cast<V*>(a), reinterpret_cast<V*>(b), c, reinterpret_cast<V*>(s));
}

template <typename T>
cublasStatus_t Rotmg(cublasHandle_t handle, T* d1, T* d2, T* x1, const T* y1, T* param) {
  struct Five {
    T values[5];
  };
  return OnScalars(
      handle,
      [](T* w1, T* w2, T* x, T* y, Five* five) { ModifiedRotation<T>(w1, w2, x, *y).Make(five->values); }, d1,
      d2, x1, const_cast<T*>(y1), reinterpret_cast<Five*>(param));
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_ROTATIONS_H_
