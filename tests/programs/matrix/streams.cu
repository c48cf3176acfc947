// Streams, events, host functions, and how they depend on each other.
#include "matrix.h"

namespace {

using matrix::LaunchMix;
using matrix::Say;
using matrix::SayHash;

constexpr unsigned kCount = 2000;
unsigned* cells;

void MakeCells() { cells = matrix::Cells(kCount, 5); }
void EndCells() { CHECK(cudaFree(cells)); }
void SayCells() { SayHash("cells", cells, kCount * sizeof(unsigned)); }

// ---- Streams of every flag, priority and attribute.

cudaStream_t streams[5], passing_stream;
unsigned long long ids[5];

void SetAttributes(cudaStream_t stream) {
  cudaStreamAttrValue value{};
  value.syncPolicy = cudaSyncPolicyYield;
  CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeSynchronizationPolicy, &value));
}

void MakeStreams() {
  MakeCells();
  int least = 0, greatest = 0;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(cudaStreamCreate(&streams[0]));
  CHECK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithPriority(&streams[2], cudaStreamDefault, greatest));
  CHECK(cudaStreamCreateWithPriority(&streams[3], cudaStreamNonBlocking, least));
  CHECK(cudaStreamCreate(&streams[4]));
  SetAttributes(streams[4]);
  for (int i = 0; i < 5; ++i) CHECK(cudaStreamGetId(streams[i], &ids[i]));
}

void SayStream(int which) {
  unsigned flags = 0;
  int priority = 0, device = -1;
  unsigned long long id = 0;
  cudaStreamAttrValue policy{};
  CHECK(cudaStreamGetFlags(streams[which], &flags));
  CHECK(cudaStreamGetPriority(streams[which], &priority));
  CHECK(cudaStreamGetDevice(streams[which], &device));
  CHECK(cudaStreamGetId(streams[which], &id));
  CHECK(cudaStreamGetAttribute(streams[which], cudaStreamAttributeSynchronizationPolicy, &policy));
  Say("[%u %d %d %d %d %s]", flags, priority, device, id == ids[which], policy.syncPolicy,
      cudaGetErrorName(cudaStreamQuery(streams[which])));
}

void StepStreams(unsigned number) {
  for (cudaStream_t stream : streams) {
    LaunchMix(cells, kCount, number, stream);
    CHECK(cudaStreamSynchronize(stream));
  }
  LaunchMix(cells, kCount, number, cudaStreamLegacy);
  CHECK(cudaStreamSynchronize(cudaStreamLegacy));
  LaunchMix(cells, kCount, number, cudaStreamPerThread);
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  for (int i = 0; i < 5; ++i) SayStream(i);
  SayCells();
  if (passing_stream != nullptr) CHECK(cudaStreamDestroy(passing_stream));
  CHECK(cudaStreamCreate(&passing_stream));
}

void EndStreams() {
  for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(passing_stream));
  EndCells();
}
MATRIX_CASE(streams, "stream", "kStream", MakeStreams, StepStreams, EndStreams);

// ---- Events of every flag, recorded and not.

cudaEvent_t timed_start, timed_end, blocking, untimed, never, shared;

void MakeEvents() {
  MakeCells();
  CHECK(cudaEventCreate(&timed_start));
  CHECK(cudaEventCreate(&timed_end));
  CHECK(cudaEventCreate(&never));
  CHECK(cudaEventCreateWithFlags(&blocking, cudaEventBlockingSync));
  CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&shared, cudaEventDisableTiming | cudaEventInterprocess));
  CHECK(cudaEventRecord(timed_start));
  CHECK(cudaEventSynchronize(timed_start));
}

void StepEvents(unsigned number) {
  float milliseconds = -1;
  for (cudaEvent_t event : {blocking, untimed, shared, timed_end}) {
    LaunchMix(cells, kCount, number);
    CHECK(cudaEventRecord(event));
    CHECK(cudaEventSynchronize(event));
  }
  CHECK(cudaEventElapsedTime(&milliseconds, timed_start, timed_end));
  Say("elapsed %d", milliseconds > 0);
  Say("untimed %s", cudaGetErrorName(cudaEventElapsedTime(&milliseconds, untimed, timed_end)));
  Say("never %s %s", cudaGetErrorName(cudaEventQuery(never)),
      cudaGetErrorName(cudaEventElapsedTime(&milliseconds, never, timed_end)));
  (void)cudaGetLastError();
  SayCells();
}

void EndEvents() {
  for (cudaEvent_t event : {timed_start, timed_end, blocking, untimed, never, shared}) CHECK(cudaEventDestroy(event));
  EndCells();
}
MATRIX_CASE(events, "event", "kEvent", MakeEvents, StepEvents, EndEvents);

// ---- Pair: events that order the work of two streams, recorded in one step and waited for in the next.

cudaStream_t producer, consumer;
cudaEvent_t produced, consumed;

void MakeAcross() {
  MakeCells();
  CHECK(cudaStreamCreateWithFlags(&producer, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&produced, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&consumed, cudaEventDisableTiming));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaEventRecord(consumed, consumer));
}

void StepAcross(unsigned number) {
  CHECK(cudaStreamWaitEvent(producer, consumed));
  for (unsigned i = 0; i < 5; ++i) LaunchMix(cells, kCount, number + i, producer);
  CHECK(cudaEventRecord(produced, producer));
  CHECK(cudaStreamWaitEvent(consumer, produced));
  LaunchMix(cells, kCount / 2, number, consumer);
  CHECK(cudaEventRecord(consumed, consumer));
  SayCells();
}

void EndAcross() {
  for (cudaEvent_t event : {produced, consumed}) CHECK(cudaEventDestroy(event));
  for (cudaStream_t stream : {producer, consumer}) CHECK(cudaStreamDestroy(stream));
  EndCells();
}
MATRIX_CASE(across, "event-across-streams", "kEvent kStream", MakeAcross, StepAcross, EndAcross);

// ---- Host functions and callbacks, which are told what they were given.

cudaStream_t calling;
struct Calls {
  unsigned functions = 0, callbacks = 0;
  cudaStream_t told = nullptr;
} calls;

void CUDART_CB Function(void* data) { ++static_cast<Calls*>(data)->functions; }
void CUDART_CB Callback(cudaStream_t stream, cudaError_t, void* data) {
  ++static_cast<Calls*>(data)->callbacks;
  static_cast<Calls*>(data)->told = stream;
}

void MakeCalls() {
  MakeCells();
  CHECK(cudaStreamCreate(&calling));
}

void StepCalls(unsigned number) {
  LaunchMix(cells, kCount, number, calling);
  CHECK(cudaLaunchHostFunc(calling, Function, &calls));
  CHECK(cudaStreamAddCallback(calling, Callback, &calls, 0));
  CHECK(cudaStreamSynchronize(calling));
  Say("functions %u callbacks %u right-stream %d", calls.functions, calls.callbacks, calls.told == calling);
  SayCells();
}

void EndCalls() {
  CHECK(cudaStreamDestroy(calling));
  EndCells();
}
MATRIX_CASE(calls, "host-function", "kStream", MakeCalls, StepCalls, EndCalls);

// ---- Values that a stream writes and waits for.

void MakeValues() {
  MakeCalls();
  CHECK(cudaDeviceSynchronize());
}

void StepValues(unsigned number) {
  const CUdeviceptr flag = reinterpret_cast<CUdeviceptr>(cells);
  CHECK(cuStreamWriteValue32(calling, flag, number, 0));
  CHECK(cuStreamWaitValue32(calling, flag, number, CU_STREAM_WAIT_VALUE_EQ));
  LaunchMix(cells + 1, kCount - 1, number, calling);
  CHECK(cuStreamWriteValue64(calling, flag + 8, number * 77ull, 0));
  CHECK(cudaStreamSynchronize(calling));
  SayCells();
}
MATRIX_CASE(values, "stream-values", "kStream", MakeValues, StepValues, EndCalls);

}  // namespace
