#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <set>

#include "softgpu/native/driver.h"
#include "softgpu/nccl/api.h"
#include "softgpu/nccl/config.h"
#include "softgpu/nccl/group.h"
#include "softgpu/nccl/log.h"

namespace softgpu::nccl {

namespace {

using native::Driver;

ncclResult_t NotNull(const void* pointer, const char* function, const char* what) {
  return pointer != nullptr ? ncclSuccess : Fail(ncclInvalidArgument, "%s: %s is NULL", function, what);
}

ncclResult_t FromHandle(ncclComm_t comm, const char* function, CommunicatorPtr* communicator) {
  *communicator = Find(comm);
  return *communicator != nullptr
             ? ncclSuccess
             : Fail(ncclInvalidArgument, "%s: comm is no communicator of this process", function);
}

// A communicator whose facts are known.
ncclResult_t Made(ncclComm_t comm, const void* out, const char* function, CommunicatorPtr* communicator) {
  NCCL_TRY(NotNull(out, function, "the result"));
  NCCL_TRY(FromHandle(comm, function, communicator));
  return (*communicator)->made()
             ? ncclSuccess
             : Fail(ncclInvalidArgument, "%s: the communicator is not initialised", function);
}

// The meeting place that NCCL_COMM_ID names; an invalid one is an error. Nothing when it is not set.
ncclResult_t GivenMeeting(bool* given, MeetingId* id) {
  const char* text = getenv("NCCL_COMM_ID");
  *given = text != nullptr && *text != '\0';
  if (!*given) return ncclSuccess;
  auto address = ParseAddress(text);
  if (!address.ok())
    return Fail(ncclInvalidArgument, "NCCL_COMM_ID: %s", address.status().ToString().c_str());
  id->address = *address;
  // Nothing secret is known to all.
  id->secret = kMagic ^ address->ip ^ static_cast<uint64_t>(address->port) << 32;
  return ncclSuccess;
}

ncclResult_t ReadId(const ncclUniqueId& from, int rank, MeetingId* id) {
  std::memcpy(static_cast<void*>(id), &from, sizeof *id);
  if (id->magic != kMagic) return Fail(ncclInvalidArgument, "the unique id is not one of ncclGetUniqueId");
  bool given = false;
  MeetingId environment;
  NCCL_TRY(GivenMeeting(&given, &environment));
  if (!given || rank != 0 || environment.secret != id->secret) return ncclSuccess;
  auto root = StartRoot(id->address, id->secret);
  return root.ok() ? ncclSuccess
                   : Fail(ncclSystemError, "NCCL_COMM_ID: %s", root.status().ToString().c_str());
}

ncclResult_t SubmitSetup(CommunicatorPtr communicator, CommunicatorPtr parent, SetupRequest request,
                         ncclComm_t* handle) {
  if (communicator != nullptr) *handle = Register(communicator);
  return Submit(
      {std::move(communicator), std::move(parent), std::make_shared<Setup>(std::move(request)), handle});
}

ncclResult_t InitRank(ncclComm_t* comm, int ranks, const ncclUniqueId& unique_id, int rank,
                      const ncclConfig_t* given) {
  NCCL_TRY(NotNull(comm, "ncclCommInitRank", "comm"));
  *comm = nullptr;
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks)
    return Fail(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, ranks);
  ncclConfig_t config;
  NCCL_TRY(ParseConfig(given, &config));
  auto communicator = std::make_shared<Communicator>(config);
  SetupRequest request;
  NCCL_TRY(communicator->Prepare(&request.self));
  MeetingId id;
  NCCL_TRY(ReadId(unique_id, rank, &id));
  request.meeting = id.address;
  request.secret = id.secret;
  request.ranks = ranks;
  request.rank = rank;
  return SubmitSetup(std::move(communicator), nullptr, std::move(request), comm);
}

ncclResult_t CheckDevices(int count, const int* devices) {
  int present = 0;
  NCCL_TRY(FromDriver(Driver().cuDeviceGetCount(&present), "cuDeviceGetCount"));
  if (count < 1) return Fail(ncclInvalidArgument, "Invalid device count requested : %d", count);
  std::set<int> seen;
  for (int i = 0; i < count; i++) {
    const int device = devices == nullptr ? i : devices[i];
    if (device < 0 || device >= present)
      return Fail(devices == nullptr ? ncclUnhandledCudaError : ncclInvalidArgument,
                  "Invalid device %d of %d", device, present);
    if (!seen.insert(device).second) return Fail(ncclInvalidUsage, "Device %d is listed twice", device);
  }
  return ncclSuccess;
}

// A rank on a device whose primary context is current meanwhile only.
ncclResult_t InitOnDevice(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, int device) {
  CUcontext context = nullptr, popped = nullptr;
  NCCL_TRY(FromDriver(Driver().cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain"));
  ncclResult_t result = FromDriver(Driver().cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  if (result == ncclSuccess) {
    result = InitRank(comm, ranks, id, rank, nullptr);
    Driver().cuCtxPopCurrent_v2(&popped);
  }
  // The communicator has a reference of its own.
  Driver().cuDevicePrimaryCtxRelease_v2(device);
  return result;
}

ncclResult_t InitAll(ncclComm_t* comms, int count, const int* devices) {
  NCCL_TRY(NotNull(comms, "ncclCommInitAll", "comms"));
  NCCL_TRY(FromDriver(Driver().cuInit(0), "cuInit"));
  NCCL_TRY(CheckDevices(count, devices));
  ncclUniqueId id;
  NCCL_TRY(GetUniqueId(&id));
  NCCL_TRY(BeginGroup());
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < count && result == ncclSuccess; i++)
    result = Note(InitOnDevice(&comms[i], count, id, i, devices == nullptr ? i : devices[i]));
  const ncclResult_t ended = EndGroup();
  return result == ncclSuccess ? ended : result;
}

// What a new communicator of `participants`, ranks of `parent`, needs; the caller adds its color and key.
ncclResult_t MakeChild(const CommunicatorPtr& parent, const std::vector<int>& participants, int color,
                       int key, const ncclConfig_t* given, ncclComm_t* child) {
  ncclConfig_t config = parent->config();
  if (given != nullptr) NCCL_TRY(ParseConfig(given, &config));
  SetupRequest request;
  CommunicatorPtr communicator;
  PeerInfo self;
  if (color != NCCL_SPLIT_NOCOLOR) {
    communicator = std::make_shared<Communicator>(config);
    NCCL_TRY(communicator->Prepare(&self, parent.get()));
  }
  request = parent->Meet(participants);
  request.self = self;
  request.self.color = color;
  request.self.key = key;
  return SubmitSetup(std::move(communicator), parent, std::move(request), child);
}

ncclResult_t Split(ncclComm_t comm, int color, int key, ncclComm_t* child, const ncclConfig_t* config) {
  NCCL_TRY(NotNull(child, "ncclCommSplit", "newcomm"));
  *child = nullptr;
  CommunicatorPtr parent;
  NCCL_TRY(FromHandle(comm, "ncclCommSplit", &parent));
  NCCL_TRY(parent->Splittable());
  if (color < NCCL_SPLIT_NOCOLOR)
    return Fail(ncclInvalidArgument, "ncclCommSplit: color %d is negative", color);
  std::vector<int> everybody(parent->ranks());
  std::iota(everybody.begin(), everybody.end(), 0);
  return MakeChild(parent, everybody, color, key, config, child);
}

ncclResult_t Shrink(ncclComm_t comm, const int* excluded, int excluded_count, ncclComm_t* child,
                    const ncclConfig_t* config, int flags) {
  NCCL_TRY(NotNull(child, "ncclCommShrink", "newcomm"));
  *child = nullptr;
  CommunicatorPtr parent;
  NCCL_TRY(FromHandle(comm, "ncclCommShrink", &parent));
  NCCL_TRY(parent->Splittable());
  NCCL_TRY(NotNull(excluded, "ncclCommShrink", "excludeRanksList"));
  const std::set<int> out(excluded, excluded + std::max(excluded_count, 0));
  if (out.empty() || *out.begin() < 0 || *out.rbegin() >= parent->ranks() || out.count(parent->rank()) != 0)
    return Fail(ncclInvalidArgument, "ncclCommShrink: rank %d cannot exclude these ranks", parent->rank());
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT)
    return Fail(ncclInvalidArgument, "ncclCommShrink: unknown flags %#x", flags);
  if (flags == NCCL_SHRINK_ABORT) parent->Revoke();
  std::vector<int> rest;
  for (int rank = 0; rank < parent->ranks(); rank++) {
    if (out.count(rank) == 0) rest.push_back(rank);
  }
  return MakeChild(parent, rest, 0, parent->rank(), config, child);
}

// Ends a communicator whose handle is good no longer.
ncclResult_t End(ncclComm_t comm, const char* function, bool abort) {
  if (comm == nullptr) return ncclSuccess;
  CommunicatorPtr communicator;
  NCCL_TRY(FromHandle(comm, function, &communicator));
  return SubmitEnd([communicator, abort] {
    Unregister(communicator);
    communicator->Close(abort);
    Forget(communicator);
    return ncclSuccess;
  });
}

ncclResult_t Finalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  CommunicatorPtr communicator;
  NCCL_TRY(FromHandle(comm, "ncclCommFinalize", &communicator));
  return SubmitEnd([communicator] { return communicator->Finalize(); });
}

ncclResult_t Revoke(ncclComm_t comm, int flags) {
  CommunicatorPtr communicator;
  NCCL_TRY(FromHandle(comm, "ncclCommRevoke", &communicator));
  if (flags != NCCL_REVOKE_DEFAULT)
    return Fail(ncclInvalidArgument, "ncclCommRevoke: unknown flags %#x", flags);
  NCCL_TRY(communicator->Splittable());
  communicator->Revoke();
  return ncclSuccess;
}

}  // namespace

ncclResult_t GetVersion(int* version) {
  NCCL_TRY(NotNull(version, "ncclGetVersion", "version"));
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t GetUniqueId(ncclUniqueId* unique_id) {
  NCCL_TRY(NotNull(unique_id, "ncclGetUniqueId", "uniqueId"));
  MeetingId id;
  bool given = false;
  NCCL_TRY(GivenMeeting(&given, &id));
  if (!given) {
    id.secret = RandomSecret();
    auto local = LocalAddress();
    if (!local.ok()) return Fail(ncclSystemError, "ncclGetUniqueId: %s", local.status().ToString().c_str());
    auto root = StartRoot(*local, id.secret);
    if (!root.ok()) return Fail(ncclSystemError, "ncclGetUniqueId: %s", root.status().ToString().c_str());
    id.address = *root;
  }
  std::memset(unique_id, 0, sizeof *unique_id);
  std::memcpy(unique_id, &id, sizeof id);
  return ncclSuccess;
}

ncclResult_t CommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return Note(InitRank(comm, ranks, id, rank, nullptr));
}

ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                ncclConfig_t* config) {
  return Note(InitRank(comm, ranks, id, rank, config));
}

// One meeting is enough for any number of ranks here.
ncclResult_t CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count, ncclUniqueId* ids,
                                  ncclConfig_t* config) {
  if (ids == nullptr || id_count < 1 || id_count > ranks)
    return Note(
        Fail(ncclInvalidArgument, "ncclCommInitRankScalable: %d unique ids for %d ranks", id_count, ranks));
  return Note(InitRank(comm, ranks, ids[0], rank, config));
}

ncclResult_t CommInitAll(ncclComm_t* comms, int count, const int* devices) {
  return Note(InitAll(comms, count, devices));
}

ncclResult_t CommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  return Note(Split(comm, color, key, child, config));
}

ncclResult_t CommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* child,
                        ncclConfig_t* config, int flags) {
  return Note(Shrink(comm, excluded, excluded_count, child, config, flags));
}

ncclResult_t CommFinalize(ncclComm_t comm) { return Note(Finalize(comm)); }
ncclResult_t CommDestroy(ncclComm_t comm) { return Note(End(comm, "ncclCommDestroy", false)); }
ncclResult_t CommAbort(ncclComm_t comm) { return Note(End(comm, "ncclCommAbort", true)); }
ncclResult_t CommRevoke(ncclComm_t comm, int flags) { return Note(Revoke(comm, flags)); }

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  NCCL_TRY(NotNull(error, "ncclCommGetAsyncError", "asyncError"));
  CommunicatorPtr communicator;
  NCCL_TRY(FromHandle(comm, "ncclCommGetAsyncError", &communicator));
  *error = communicator->AsyncError();
  return ncclSuccess;
}

ncclResult_t CommCount(ncclComm_t comm, int* count) {
  CommunicatorPtr communicator;
  NCCL_TRY(Made(comm, count, "ncclCommCount", &communicator));
  *count = communicator->ranks();
  return ncclSuccess;
}

ncclResult_t CommCuDevice(ncclComm_t comm, int* device) {
  CommunicatorPtr communicator;
  NCCL_TRY(Made(comm, device, "ncclCommCuDevice", &communicator));
  *device = communicator->device();
  return ncclSuccess;
}

ncclResult_t CommUserRank(ncclComm_t comm, int* rank) {
  CommunicatorPtr communicator;
  NCCL_TRY(Made(comm, rank, "ncclCommUserRank", &communicator));
  *rank = communicator->rank();
  return ncclSuccess;
}

const char* GetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* GetLastError(ncclComm_t) { return LastError(); }

void ResetDebugInit() {}

}  // namespace softgpu::nccl
