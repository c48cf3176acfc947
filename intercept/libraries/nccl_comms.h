// What the process holds of NCCL: communicators with what was registered with them.
//
// A record is one rank's communicator. The hooks make and change records inside of the library gate; the
// pause reads and rebuilds them while it is closed. Fields without a word on them are constant once the
// record is in the book; `mutex` of the book guards the rest.
#ifndef INTERCEPT_LIBRARIES_NCCL_COMMS_H_
#define INTERCEPT_LIBRARIES_NCCL_COMMS_H_

#include <cuda.h>
#include <nccl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "intercept/libraries/nccl_cut.h"

namespace stasis::nccl {

// A copy of a configuration that the program's own memory is not needed for.
class KeptConfig {
 public:
  KeptConfig() = default;
  // Null: the program gave none.
  explicit KeptConfig(const ncclConfig_t* config);
  bool given() const { return given_; }
  // The program was built for a later NCCL, whose configuration has fields we do not know.
  bool unknown() const { return unknown_; }
  // To be passed to the library; valid as long as this object and unchanged.
  ncclConfig_t* Fill(ncclConfig_t* storage) const;

 private:
  bool given_ = false, unknown_ = false;
  ncclConfig_t config_{};
  std::optional<std::string> net_name_, comm_name_;
};

struct KeptBuffer {  // ncclCommRegister
  void* visible = nullptr;
  void* buffer = nullptr;
  size_t size = 0;
};

struct KeptWindow {  // ncclCommWindowRegister
  ncclWindow_t visible = nullptr;
  void* buffer = nullptr;
  size_t size = 0;
  int flags = 0;
};

struct KeptOperator {  // ncclRedOpCreatePreMulSum
  ncclRedOp_t visible{};
  ncclRedOp_t real{};
  ncclDataType_t type{};
  ncclScalarResidence_t residence{};
  void* scalar = nullptr;            // on the device
  std::array<std::byte, 8> value{};  // of the host
};

// How a communicator stands. Only kLive ones are made again; the others answer from their record after a
// rebuild.
enum class CommState : uint8_t {
  kLive,
  kFinalized,  // ncclCommFinalize is done
  kFailed,     // it had an asynchronous error, or one of its ranks has one, at a pause
  kOrphaned,   // a rank of this process has ended it while this one had not, at a pause
};

struct CommRecord {
  ncclComm_t visible = nullptr;
  const char* made_by = "";  // the function's name
  uint64_t clique_key = 0;
  int depth = 0;          // of what it was split off from, plus one
  uint64_t sequence = 0;  // in the order of creation
  KeptConfig config;
  CUcontext context = nullptr;  // visible; current when it was made, or null

  // Guarded.
  int size = 0, rank = 0, device = 0;
  CutRankPtr cut;             // null while it is being made and its rank is not known
  ncclComm_t real = nullptr;  // null: given up
  CommState state = CommState::kLive;
  bool finalizing = false;           // ncclCommFinalize was accepted
  bool ending = false;               // a call that frees the library's object is on its way
  bool busy = false;                 // a call on it has said ncclInProgress, and nobody has seen the end
  ncclResult_t error = ncclSuccess;  // of kFailed
  std::string last_error;
  uint32_t splits = 0;                           // made from it
  std::map<std::vector<int>, uint32_t> shrinks;  // made from it, by the ranks left out
  std::vector<KeptBuffer> buffers;
  std::vector<KeptWindow> windows;
  std::vector<KeptOperator> operators;
  std::string captured;  // the call that was captured into a graph; empty: none
  std::string refused;   // the call that made it impossible to carry; empty: none
};
using CommPtr = std::shared_ptr<CommRecord>;

class CommBook {
 public:
  static CommBook& Get();

  CommPtr Find(ncclComm_t visible);
  // Takes it in as the library's `real`, and gives it its visible handle.
  void Add(const CommPtr& comm, ncclComm_t real);
  void Remove(const CommPtr& comm);
  // Its rank is known.
  void NoteRank(const CommPtr& comm);
  // Oldest first.
  std::vector<CommPtr> All();
  // How many different ranks of a communicator this process has ever made.
  int RanksEver(uint64_t clique_key);

  // In the child, where another thread may have held the lock.
  void ResetAfterFork() { new (&mutex) std::mutex; }

  std::mutex mutex;  // a leaf; never held across a call of the library

 private:
  CommBook() = default;
  std::map<ncclComm_t, CommPtr> comms_;
  std::map<uint64_t, std::vector<int>> ranks_;  // by clique, while one of its ranks lives
  uint64_t next_sequence_ = 0;
};

// The same in every process: of a new communicator by its unique ids, of one made of another by that one, how
// often that was done, and the colour or the ranks that are left out.
uint64_t CliqueKey(const ncclUniqueId* ids, int count);
uint64_t CliqueKey(uint64_t parent, const char* how, uint32_t number, int color);
uint64_t CliqueKey(uint64_t parent, const char* how, uint32_t number, const std::vector<int>& ranks);

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_COMMS_H_
