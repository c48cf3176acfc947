// Each convolution is a matrix product over columns: for every output position the inputs that its filter
// covers. Positions of all images follow each other, and are taken kPositions at a time.
#include "softgpu/dnn/convolution.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "softgpu/dnn/gemm.h"

namespace softgpu::dnn {
namespace {

// Sizes with three dimensions of space, missing ones being 1; channels are those of one group.
struct Geometry {
  Geometry(const ConvolutionParams& params, const Shape& x, const Shape& w, const Shape& y)
      : batch(static_cast<size_t>(x.dim[0])),
        groups(static_cast<size_t>(params.groups)),
        in_channels(static_cast<size_t>(w.dim[1])),
        out_channels(static_cast<size_t>(w.dim[0] / params.groups)),
        mirrored(params.mirrored != 0) {
    for (int i = 0; i < params.space; ++i) {
      const int to = kMaxSpace - params.space + i;
      in[to] = x.dim[2 + i];
      out[to] = y.dim[2 + i];
      window[to] = w.dim[2 + i];
      pad[to] = params.pad[i];
      stride[to] = params.stride[i];
      dilation[to] = params.dilation[i];
    }
  }

  size_t InSpace() const { return static_cast<size_t>(in[0]) * in[1] * in[2]; }
  size_t OutSpace() const { return static_cast<size_t>(out[0]) * out[1] * out[2]; }
  size_t Window() const { return static_cast<size_t>(window[0]) * window[1] * window[2]; }
  size_t Rows() const { return in_channels * Window(); }  // of a column
  size_t Positions() const { return batch * OutSpace(); }

  // Where the channels of a group begin in packed values.
  size_t InChannel(size_t image, size_t group) const { return (image * groups + group) * in_channels; }
  size_t OutChannel(size_t image, size_t group) const { return (image * groups + group) * out_channels; }

  size_t batch;
  size_t groups;
  size_t in_channels;
  size_t out_channels;
  bool mirrored;
  int in[kMaxSpace] = {1, 1, 1};
  int out[kMaxSpace] = {1, 1, 1};
  int window[kMaxSpace] = {1, 1, 1};
  int pad[kMaxSpace] = {};
  int stride[kMaxSpace] = {1, 1, 1};
  int dilation[kMaxSpace] = {1, 1, 1};
};

// Neighbouring output positions of one row of one image.
struct Run {
  size_t image;
  size_t position;  // of the first in its image
  int first[kMaxSpace];
  int length;
};

std::vector<Run> RunsOf(const Geometry& g, size_t begin, size_t end) {
  std::vector<Run> runs;
  const size_t width = static_cast<size_t>(g.out[2]);
  const size_t height = static_cast<size_t>(g.out[1]);
  while (begin < end) {
    Run run;
    run.image = begin / g.OutSpace();
    run.position = begin % g.OutSpace();
    const size_t row = run.position / width;
    const size_t column = run.position % width;
    run.first[0] = static_cast<int>(row / height);
    run.first[1] = static_cast<int>(row % height);
    run.first[2] = static_cast<int>(column);
    run.length = static_cast<int>(std::min(width - column, end - begin));
    begin += static_cast<size_t>(run.length);
    runs.push_back(run);
  }
  return runs;
}

// The part of a run whose inputs lie within the image for one element of the filter, and where they begin.
struct Covered {
  int begin = 0;  // in the run
  int end = 0;
  ptrdiff_t input = 0;  // of position 0 of the run, from the channel's first; may lie before the row
};

Covered Cover(const Geometry& g, const Run& run, const int (&at)[kMaxSpace]) {
  int place[kMaxSpace];
  for (int i = 0; i < kMaxSpace; ++i) {
    place[i] = run.first[i] * g.stride[i] - g.pad[i] + at[i] * g.dilation[i];
  }
  if (place[0] < 0 || place[0] >= g.in[0] || place[1] < 0 || place[1] >= g.in[1]) return {};
  const int step = g.stride[2];
  Covered covered;
  covered.begin = place[2] >= 0 ? 0 : std::min((-place[2] + step - 1) / step, run.length);
  const int left = g.in[2] - place[2];
  covered.end = left <= 0 ? 0 : std::min((left + step - 1) / step, run.length);
  covered.end = std::max(covered.end, covered.begin);
  covered.input = (static_cast<ptrdiff_t>(place[0]) * g.in[1] + place[1]) * g.in[2] + place[2];
  return covered;
}

// Calls body(row of the columns, channel, element of the filter) in order.
template <typename Body>
void ForEachColumnRow(const Geometry& g, Body&& body) {
  size_t row = 0;
  for (size_t channel = 0; channel < g.in_channels; ++channel) {
    int at[kMaxSpace];
    for (at[0] = 0; at[0] < g.window[0]; ++at[0]) {
      for (at[1] = 0; at[1] < g.window[1]; ++at[1]) {
        for (at[2] = 0; at[2] < g.window[2]; ++at[2]) body(row++, channel, at);
      }
    }
  }
}

// columns[row][position] = the input under the filter, 0 where there is none.
template <typename T>
void FillColumns(const Geometry& g, const T* x, size_t group, const std::vector<Run>& runs, size_t count,
                 T* columns) {
  ForEachColumnRow(g, [&](size_t row, size_t channel, const int(&at)[kMaxSpace]) {
    T* to = columns + row * count;
    for (const Run& run : runs) {
      const Covered covered = Cover(g, run, at);
      const T* from = x + (g.InChannel(run.image, group) + channel) * g.InSpace();
      std::fill(to, to + covered.begin, T(0));
      if (g.stride[2] == 1) {
        std::copy(from + covered.input + covered.begin, from + covered.input + covered.end,
                  to + covered.begin);
      } else {
        for (int i = covered.begin; i < covered.end; ++i) to[i] = from[covered.input + i * g.stride[2]];
      }
      std::fill(to + covered.end, to + run.length, T(0));
      to += run.length;
    }
  });
}

// The reverse: adds each value to the input that it came from.
template <typename T>
void AddColumns(const Geometry& g, const T* columns, size_t group, const std::vector<Run>& runs, size_t count,
                T* dx) {
  ForEachColumnRow(g, [&](size_t row, size_t channel, const int(&at)[kMaxSpace]) {
    const T* from = columns + row * count;
    for (const Run& run : runs) {
      const Covered covered = Cover(g, run, at);
      T* to = dx + (g.InChannel(run.image, group) + channel) * g.InSpace();
      for (int i = covered.begin; i < covered.end; ++i) to[covered.input + i * g.stride[2]] += from[i];
      from += run.length;
    }
  });
}

// Copies the outputs at the runs' positions from or to rows of `count`, one for each channel of the group.
template <typename T>
void GatherOutputs(const Geometry& g, const T* y, size_t group, const std::vector<Run>& runs, size_t count,
                   T* rows) {
  for (size_t channel = 0; channel < g.out_channels; ++channel) {
    T* to = rows + channel * count;
    for (const Run& run : runs) {
      const T* from = y + (g.OutChannel(run.image, group) + channel) * g.OutSpace() + run.position;
      to = std::copy(from, from + run.length, to);
    }
  }
}

template <typename T>
void ScatterOutputs(const Geometry& g, const T* rows, size_t group, const std::vector<Run>& runs,
                    size_t count, T* y) {
  for (size_t channel = 0; channel < g.out_channels; ++channel) {
    const T* from = rows + channel * count;
    for (const Run& run : runs) {
      std::copy(from, from + run.length,
                y + (g.OutChannel(run.image, group) + channel) * g.OutSpace() + run.position);
      from += run.length;
    }
  }
}

// Filters in the order of the columns' rows; their elements the other way round where the filter is mirrored.
template <typename T>
void Orient(const Geometry& g, const T* from, T* to) {
  const size_t window = g.Window();
  const size_t filters = g.groups * g.out_channels * g.in_channels;
  for (size_t i = 0; i < filters; ++i)
    std::reverse_copy(from + i * window, from + (i + 1) * window, to + i * window);
}

template <typename T>
const T* OrientedFilter(const Geometry& g, const Source& w, Arena* arena) {
  const T* values = Values<T>(w, arena);
  if (!g.mirrored) return values;
  T* oriented = arena->Take<T>(w.shape.Count());
  Orient(g, values, oriented);
  return oriented;
}

// Calls body(group, runs, number of positions) for each block of positions of each group.
template <typename Body>
void ForEachBlock(const Geometry& g, Body&& body) {
  for (size_t begin = 0; begin < g.Positions(); begin += kPositions) {
    const size_t end = std::min(begin + kPositions, g.Positions());
    const std::vector<Run> runs = RunsOf(g, begin, end);
    for (size_t group = 0; group < g.groups; ++group) body(group, runs, end - begin);
  }
}

template <typename T>
void Forward(const Geometry& g, const Blend& blend, const Source& x, const Source& w, const Target& y,
             Arena* arena) {
  const T* in = Values<T>(x, arena);
  const T* filter = OrientedFilter<T>(g, w, arena);
  T* columns = arena->Take<T>(g.Rows() * kPositions);
  T* rows = arena->Take<T>(g.out_channels * kPositions);
  const Results<T> out(y, blend, arena);
  ForEachBlock(g, [&](size_t group, const std::vector<Run>& runs, size_t count) {
    FillColumns(g, in, group, runs, count, columns);
    Gemm<T>(g.out_channels, count, g.Rows(), {filter + group * g.out_channels * g.Rows(), g.Rows(), 1},
            {columns, count, 1}, rows, count, false);
    ScatterOutputs(g, rows, group, runs, count, out.data());
  });
  out.Commit();
}

// Turns convolutions of one channel of one image into the fused operation's results.
template <typename T>
void FusePlane(const Blend& blend, size_t space, const T* z, T bias, T* y) {
  const T alpha = static_cast<T>(blend.alpha);
  const T beta = static_cast<T>(blend.beta);
  for (size_t i = 0; i < space; ++i) y[i] = alpha * y[i] + (z != nullptr ? beta * z[i] : T(0)) + bias;
}

template <typename T>
void Fused(const Geometry& g, const Blend& blend, const ActivationParams& activation, const Source& x,
           const Source& w, const Source& z, const Source& bias, const Target& y, Arena* arena) {
  // z may be where y is, so the convolution goes elsewhere.
  Shape packed = y.shape;
  packed.type = kTypeOf<T>;
  SetPackedStrides(false, &packed);
  const size_t count = packed.Count();
  T* values = arena->Take<T>(count);
  Forward<T>(g, {}, x, w, {packed, values}, arena);
  const T* added = Values<T>(z, arena);
  const T* biases = Values<T>(bias, arena);
  const size_t channels = g.groups * g.out_channels;
  for (size_t plane = 0; plane < g.batch * channels; ++plane) {
    const size_t offset = plane * g.OutSpace();
    FusePlane(blend, g.OutSpace(), added != nullptr ? added + offset : nullptr, biases[plane % channels],
              values + offset);
  }
  Activate(activation, count, values, values);
  Scatter(values, {}, y);
}

template <typename T>
void BackwardData(const Geometry& g, const Blend& blend, const Source& w, const Source& dy, const Target& dx,
                  Arena* arena) {
  const T* slope = Values<T>(dy, arena);
  const T* filter = OrientedFilter<T>(g, w, arena);
  T* columns = arena->Take<T>(g.Rows() * kPositions);
  T* rows = arena->Take<T>(g.out_channels * kPositions);
  const Results<T> out(dx, blend, arena);
  std::fill_n(out.data(), dx.shape.Count(), T(0));
  ForEachBlock(g, [&](size_t group, const std::vector<Run>& runs, size_t count) {
    GatherOutputs(g, slope, group, runs, count, rows);
    Gemm<T>(g.Rows(), count, g.out_channels, {filter + group * g.out_channels * g.Rows(), 1, g.Rows()},
            {rows, count, 1}, columns, count, false);
    AddColumns(g, columns, group, runs, count, out.data());
  });
  out.Commit();
}

template <typename T>
void BackwardFilter(const Geometry& g, const Blend& blend, const Source& x, const Source& dy,
                    const Target& dw, Arena* arena) {
  const T* in = Values<T>(x, arena);
  const T* slope = Values<T>(dy, arena);
  const size_t group_size = g.out_channels * g.Rows();
  T* columns = arena->Take<T>(g.Rows() * kPositions);
  T* rows = arena->Take<T>(g.out_channels * kPositions);
  T* part = arena->Take<T>(group_size);
  T* sum = arena->Take<T>(dw.shape.Count());
  std::fill_n(sum, dw.shape.Count(), T(0));
  ForEachBlock(g, [&](size_t group, const std::vector<Run>& runs, size_t count) {
    FillColumns(g, in, group, runs, count, columns);
    GatherOutputs(g, slope, group, runs, count, rows);
    Gemm<T>(g.out_channels, g.Rows(), count, {rows, count, 1}, {columns, 1, count}, part, g.Rows(), false);
    T* to = sum + group * group_size;
    for (size_t i = 0; i < group_size; ++i) to[i] += part[i];
  });
  const Results<T> out(dw, blend, arena);
  if (g.mirrored) {
    Orient(g, sum, out.data());
  } else {
    std::copy_n(sum, dw.shape.Count(), out.data());
  }
  out.Commit();
}

template <typename T>
void BackwardBias(const Blend& blend, const Source& dy, const Target& db, Arena* arena) {
  const T* slope = Values<T>(dy, arena);
  const size_t space = dy.shape.Space();
  const size_t channels = static_cast<size_t>(dy.shape.dim[1]);
  const Results<T> out(db, blend, arena);
  std::fill_n(out.data(), channels, T(0));
  for (int image = 0; image < dy.shape.dim[0]; ++image) {
    for (size_t channel = 0; channel < channels; ++channel, slope += space) {
      T sum = 0;
      for (size_t i = 0; i < space; ++i) sum += slope[i];
      out.data()[channel] += sum;
    }
  }
  out.Commit();
}

}  // namespace

bool ForwardShape(const ConvolutionParams& params, const Shape& x, const Shape& w, Shape* y) {
  if (params.space < 1 || x.rank != params.space + 2 || w.rank != x.rank) return false;
  if (x.dim[1] != static_cast<int64_t>(w.dim[1]) * params.groups || w.dim[0] % params.groups != 0)
    return false;
  *y = Shape{};
  y->type = x.type;
  y->rank = x.rank;
  y->dim[0] = x.dim[0];
  y->dim[1] = w.dim[0];
  for (int i = 0; i < params.space; ++i) {
    const int64_t window = static_cast<int64_t>(w.dim[2 + i] - 1) * params.dilation[i] + 1;
    const int64_t room = x.dim[2 + i] + 2 * static_cast<int64_t>(params.pad[i]) - window;
    if (room < 0 || room / params.stride[i] >= INT32_MAX) return false;
    y->dim[2 + i] = static_cast<int32_t>(1 + room / params.stride[i]);
  }
  SetPackedStrides(false, y);
  return true;
}

void ConvolutionForward(const ConvolutionParams& params, const Blend& blend, const Source& x, const Source& w,
                        const Target& y, Arena* arena) {
  const Geometry geometry(params, x.shape, w.shape, y.shape);
  WithCompute(x.shape.type, [&](auto* type) {
    Forward<std::remove_pointer_t<decltype(type)>>(geometry, blend, x, w, y, arena);
  });
}

void ConvolutionFused(const ConvolutionParams& params, const Blend& blend, const ActivationParams& activation,
                      const Source& x, const Source& w, const Source& z, const Source& bias, const Target& y,
                      Arena* arena) {
  const Geometry geometry(params, x.shape, w.shape, y.shape);
  WithCompute(x.shape.type, [&](auto* type) {
    Fused<std::remove_pointer_t<decltype(type)>>(geometry, blend, activation, x, w, z, bias, y, arena);
  });
}

void ConvolutionBackwardData(const ConvolutionParams& params, const Blend& blend, const Source& w,
                             const Source& dy, const Target& dx, Arena* arena) {
  const Geometry geometry(params, dx.shape, w.shape, dy.shape);
  WithCompute(dy.shape.type, [&](auto* type) {
    BackwardData<std::remove_pointer_t<decltype(type)>>(geometry, blend, w, dy, dx, arena);
  });
}

void ConvolutionBackwardFilter(const ConvolutionParams& params, const Blend& blend, const Source& x,
                               const Source& dy, const Target& dw, Arena* arena) {
  const Geometry geometry(params, x.shape, dw.shape, dy.shape);
  WithCompute(x.shape.type, [&](auto* type) {
    BackwardFilter<std::remove_pointer_t<decltype(type)>>(geometry, blend, x, dy, dw, arena);
  });
}

void ConvolutionBackwardBias(const Blend& blend, const Source& dy, const Target& db, Arena* arena) {
  WithCompute(dy.shape.type,
              [&](auto* type) { BackwardBias<std::remove_pointer_t<decltype(type)>>(blend, dy, db, arena); });
}

size_t ColumnBytes(const ConvolutionParams& params, const Shape& x, const Shape& w) {
  const size_t size = x.type == CUDNN_DATA_DOUBLE ? sizeof(double) : sizeof(float);
  const size_t rows = w.Count() / static_cast<size_t>(w.dim[0]);
  const size_t outputs = static_cast<size_t>(w.dim[0] / params.groups);
  return (rows + outputs) * kPositions * size + 256;
}

}  // namespace softgpu::dnn
