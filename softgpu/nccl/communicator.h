// Communicator: one rank of a communicator, what an ncclComm_t stands for.
#ifndef SOFTGPU_NCCL_COMMUNICATOR_H_
#define SOFTGPU_NCCL_COMMUNICATOR_H_

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "softgpu/nccl/device_side.h"
#include "softgpu/nccl/operation.h"
#include "softgpu/nccl/proxy.h"
#include "softgpu/nccl/setup.h"

namespace softgpu::nccl {

// The factor of a reduction made by ncclRedOpCreatePreMulSum.
struct Factor {
  ncclDataType_t type = ncclInt8;
  bool on_device = false;
  uint64_t scalar = 0;
};

// Operations of one group for one communicator, in the order of the calls.
struct Batch {
  std::vector<Operation> operations;
  std::vector<CUstream> streams;  // of each
};

// Thread-safe unless told otherwise.
class Communicator {
 public:
  explicit Communicator(const ncclConfig_t& config);
  ~Communicator();

  // ---- Life. Prepare takes what the rank needs of the current device, or of the parent's, and fills what
  // the others are told of it. Then the setup runs, and EndSetup takes what it came to.
  ncclResult_t Prepare(PeerInfo* self, const Communicator* parent = nullptr);
  void Await(std::shared_ptr<SetupRun> run, std::shared_ptr<Setup> setup);
  ncclResult_t EndSetup(ncclResult_t result);
  // After EndSetup, not on the run's own thread: lets go of what the setup needed.
  void ForgetSetup();
  // For the parent of one that is made without blocking.
  void SetState(ncclResult_t state) { state_.store(state); }
  // What was launched in streams has run.
  ncclResult_t Flush();
  // Flush, then lets go of everything. In the background when the communicator does not block.
  ncclResult_t Finalize();
  // Kernels end without having done their work, and no more are accepted.
  void Revoke();
  // Lets go of everything: in good order, or where it stands when an operation failed or `abort` says so.
  void Close(bool abort);

  // ---- Facts.
  uint64_t id() const { return id_; }
  // The rest is known.
  bool made() const { return ready_.load(); }
  int rank() const { return membership_.rank; }
  int ranks() const { return membership_.ranks; }
  int device() const { return device_.ordinal(); }
  bool blocking() const { return config_.blocking != 0; }
  const ncclConfig_t& config() const { return config_; }
  // ncclSuccess, ncclInProgress, or what went wrong.
  ncclResult_t AsyncError() const;
  // ncclSuccess when operations may be launched.
  ncclResult_t Usable() const;
  // The same for making another communicator of this one.
  ncclResult_t Splittable() const;

  // ---- Making another communicator of this one: a meeting at the lowest of the ranks that take part.
  SetupRequest Meet(const std::vector<int>& participants);

  // ---- Launching.
  ncclResult_t Launch(const Batch& batch);

  // ---- Reductions of the program's own.
  ncclResult_t AddReduction(const Factor& factor, ncclRedOp_t* op);
  ncclResult_t RemoveReduction(ncclRedOp_t op);
  ncclResult_t FindReduction(ncclRedOp_t op, ncclDataType_t type, Operation* operation) const;

  // ---- Registered buffers and windows: names that are valid until given back.
  void* AddRegistration();
  bool RemoveRegistration(void* handle);

  // ---- For the kernels.
  // Waits for the kernels of this communicator that are running. False: there is nothing more to do.
  bool Enter();
  void Leave();
  // Must not go on: aborted or revoked.
  bool stopped() const { return stopped_.load(); }
  // Kernels that cannot go on for an error wait for this or for stopped().
  bool closing() const { return closing_.load(); }
  // Found by a kernel or the proxy; the other ranks are told.
  void ReportError(ncclResult_t error);
  Link& link(int peer) { return membership_.links[static_cast<size_t>(peer)]; }
  Bell& bell() { return *membership_.inbox->bell(); }
  CUdeviceptr staging() const { return device_.staging(); }
  uint64_t NextSequence() { return sequence_++; }
  // The operations of a launch that did not fit into it. Empty: no such list.
  std::shared_ptr<const std::vector<Operation>> TakeList(uint64_t list, bool keep);

 private:
  ncclResult_t Begin();
  ncclResult_t CheckSelfMessages(const Batch& batch) const;
  uint64_t KeepList(const std::vector<Operation>& operations);
  void Release(bool good_order);
  void OnProxy(int peer, Proxy::Event event);

  const uint64_t id_;
  ncclConfig_t config_;
  std::string name_, net_name_;  // what the configuration points to
  DeviceSide device_;

  std::shared_ptr<SetupRun> run_;
  std::shared_ptr<Setup> setup_;
  Membership membership_;
  std::unique_ptr<Proxy> proxy_;

  std::atomic<int> state_{ncclInProgress};  // of the initialisation and the finalisation
  std::atomic<int> error_{ncclSuccess};     // of operations
  std::atomic<bool> ready_{false};          // the membership can be used
  std::atomic<bool> finalized_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> busy_{false};
  std::atomic<uint32_t> running_{0};
  uint64_t sequence_ = 0;  // of collectives; the running kernel's

  mutable std::mutex mutex_;  // for what follows
  bool closed_ = false;
  uint64_t meetings_ = 0, partial_meetings_ = 0;
  std::map<int, Factor> factors_;
  int next_reduction_ = ncclNumOps;
  std::set<void*> registrations_;
  std::map<uint64_t, std::shared_ptr<const std::vector<Operation>>> lists_;
  uint64_t next_list_ = 1;
  Thread finalizer_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

// ---- All communicators of the process.
ncclComm_t Register(CommunicatorPtr communicator);
// Null for what is no communicator of this process, or not any more.
CommunicatorPtr Find(ncclComm_t handle);
CommunicatorPtr FindById(uint64_t id);
// No more to be found under its handle; its kernels find it until Forget().
void Unregister(const CommunicatorPtr& communicator);
void Forget(const CommunicatorPtr& communicator);

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_COMMUNICATOR_H_
