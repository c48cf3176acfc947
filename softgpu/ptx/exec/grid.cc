// Blocks of a launch on the driver's worker threads.
#include "softgpu/ptx/exec/grid.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "softgpu/ptx/exec/program_state.h"
#include "softgpu/ptx/exec/warp.h"

namespace softgpu::exec {
namespace {

constexpr uint32_t kMaxLocalPerThread = 512 * 1024;  // of every compute capability
constexpr unsigned kRoundsPerTurn = 4;  // rounds over a block's warps before the next block's turn
constexpr uint64_t kIdleNanoseconds = 50000;

uint64_t Count(const Dim3& d) { return uint64_t{d.x} * d.y * d.z; }

uint32_t AlignUp(uint32_t value, uint32_t align) { return (value + align - 1) / align * align; }

void SleepNanoseconds(uint64_t ns) {
  timespec t{0, static_cast<long>(ns)};
  nanosleep(&t, nullptr);
}

class GridImpl final : public Grid, public GridState {
 public:
  explicit GridImpl(LaunchConfig config);

  Outcome Run(unsigned worker, const std::atomic<bool>& yield) override;
  bool done() const override { return failed_.load() || finished_.load() == blocks_; }
  void Cancel() override { cancelled_ = failed_ = true; }
  Fault fault() const override {
    std::lock_guard<std::mutex> lock(fault_mutex_);
    return fault_;
  }
  void SetFault(Fault fault) override {
    std::lock_guard<std::mutex> lock(fault_mutex_);
    if (fault_.kind == FaultKind::kNone && !cancelled_) fault_ = std::move(fault);
    failed_ = true;
  }

 private:
  enum class Turn : uint8_t { kRan, kIdle, kDone, kStopped };

  // What a worker has begun; touched by its thread only.
  struct Worker {
    std::deque<std::unique_ptr<Block>> resident;
    std::vector<std::unique_ptr<Block>> spare;
    uint64_t next_own = 0;  // cooperative launches: the worker's next block
    bool began = false;
  };

  bool TakeBlock(Worker& w, unsigned worker, uint64_t* linear);
  bool Begin(Worker& w, unsigned worker);
  void Prepare(Block* block) const;
  void FillSpecials(Warp* warp, const Block& block, unsigned worker) const;
  void FillParamRows();
  Turn RunBlock(Block* block, const std::atomic<bool>& yield);
  Outcome Stopped() const { return cancelled_ ? Outcome::kYielded : Outcome::kFaulted; }
  void Idle(Worker& w, const std::atomic<bool>& yield) const;

  const Kernel& kernel_;
  const uint64_t blocks_;
  uint32_t threads_, warps_;
  uint32_t dynamic_base_, shared_bytes_;
  uint32_t local_bytes_;
  std::unique_ptr<std::byte[], void (*)(void*)> param_rows_{nullptr, std::free};
  std::atomic<uint64_t> next_{0}, finished_{0};
  std::atomic<bool> failed_{false}, cancelled_{false};
  mutable std::mutex fault_mutex_;
  Fault fault_;
  std::vector<Worker> workers_;
};

GridImpl::GridImpl(LaunchConfig config)
    : GridState(std::move(config)),
      kernel_(*config_.kernel),
      blocks_(Count(config_.grid)),
      workers_(config_.workers) {
  config_.params.resize(kernel_.info.param_bytes);
  threads_ = static_cast<uint32_t>(Count(config_.block));
  warps_ = (threads_ + kWarpSize - 1) / kWarpSize;
  dynamic_base_ = AlignUp(kernel_.info.static_shared, kernel_.dynamic_align);
  shared_bytes_ = dynamic_base_ + config_.dynamic_shared;
  uint32_t share = std::min(config_.local_limit / (warps_ * kWarpSize), kMaxLocalPerThread) & ~15u;
  uint32_t needed = kernel_.info.local_bytes;
  local_bytes_ = std::min(kernel_.unbounded_stack ? std::max(share, needed) : needed, kMaxLocalPerThread);
  FillParamRows();
}

void GridImpl::FillParamRows() {
  param_rows_.reset(
      static_cast<std::byte*>(std::aligned_alloc(64, AlignUp(kernel_.param_row_bytes + 1, 64))));
  STASIS_CHECK(param_rows_ != nullptr);
  for (const ParamRow& row : kernel_.param_rows) {
    uint64_t value = 0;
    std::memcpy(&value, config_.params.data() + row.offset, row.bytes);
    if (row.sign && row.bytes < 8 && (value >> (8 * row.bytes - 1)) & 1)
      value |= ~uint64_t{0} << (8 * row.bytes);
    for (unsigned l = 0; l < kWarpSize; ++l) {
      std::memcpy(param_rows_.get() + row.row + l * row.lane_bytes, &value, row.lane_bytes);
    }
  }
}

bool GridImpl::TakeBlock(Worker& w, unsigned worker, uint64_t* linear) {
  if (config_.cooperative) {
    *linear = w.next_own * config_.workers + worker;
    if (*linear >= blocks_) return false;
    ++w.next_own;
    return true;
  }
  if (next_.load(std::memory_order_relaxed) >= blocks_) return false;
  *linear = next_.fetch_add(1);
  return *linear < blocks_;
}

void GridImpl::Prepare(Block* block) const {
  block->grid = const_cast<GridImpl*>(this);
  block->shared_bytes = shared_bytes_;
  block->dynamic_base = dynamic_base_;
  // 64 bytes more than used keep vector accesses of whole rows inside.
  block->shared = static_cast<uint8_t*>(std::aligned_alloc(64, AlignUp(shared_bytes_, 64) + 64));
  STASIS_CHECK(block->shared != nullptr);
  std::memset(block->shared, 0, AlignUp(shared_bytes_, 64) + 64);
  if (local_bytes_ != 0) {
    // An odd number of cache lines a lane: lanes use the same offsets and must not fall into the same sets.
    uint64_t lines = (uint64_t{local_bytes_} + 63) / 64;
    block->local_stride = (lines | 1) * 64;
    block->local_mapped = block->local_stride * warps_ * kWarpSize;
    void* mapped = mmap(nullptr, block->local_mapped, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    STASIS_CHECK(mapped != MAP_FAILED);
    block->local = static_cast<uint8_t*>(mapped);
  }
  for (uint32_t n = 0; n < warps_; ++n) {
    auto warp = std::make_unique<Warp>();
    warp->index = n;
    warp->block = block;
    warp->grid = block->grid;
    warp->access = config_.access;
    warp->shared = block->shared;
    warp->shared_bytes = shared_bytes_;
    warp->local_stride = block->local_stride;
    warp->local_bytes = local_bytes_;
    warp->local = block->local ? block->local + uint64_t{n} * kWarpSize * block->local_stride : nullptr;
    warp->specials = static_cast<std::byte*>(std::aligned_alloc(64, kSpecialCount * kSpecialSlot));
    STASIS_CHECK(warp->specials != nullptr);
    warp->base[kPoolBase] = ProgramOf(*config_.program).pool_rows();
    warp->base[kSpecialBase] = warp->specials;
    warp->base[kParamBase] = param_rows_.get();
    block->warps.push_back(std::move(warp));
  }
}

void GridImpl::FillSpecials(Warp* warp, const Block& block, unsigned worker) const {
  for (uint64_t used = kernel_.specials; used != 0; used &= used - 1) {
    auto special = static_cast<Special>(std::countr_zero(used));
    std::byte* row = warp->specials + (SpecialRef(special) & ~3u);
    auto* wide = reinterpret_cast<uint64_t*>(row);
    auto* narrow = reinterpret_cast<uint32_t*>(row);
    for (uint32_t l = 0; l < kWarpSize; ++l) {
      bool is_index = special <= Special::kTidZ;
      Dim3 t = is_index ? warp->ThreadIndex(l) : Dim3{0, 0, 0};
      uint32_t bit = uint32_t{1} << l, value = 0;
      switch (special) {
        case Special::kTidX:
          value = t.x;
          break;
        case Special::kTidY:
          value = t.y;
          break;
        case Special::kTidZ:
          value = t.z;
          break;
        case Special::kNtidX:
          value = config_.block.x;
          break;
        case Special::kNtidY:
          value = config_.block.y;
          break;
        case Special::kNtidZ:
          value = config_.block.z;
          break;
        case Special::kCtaidX:
          value = block.index.x;
          break;
        case Special::kCtaidY:
          value = block.index.y;
          break;
        case Special::kCtaidZ:
          value = block.index.z;
          break;
        case Special::kNctaidX:
          value = config_.grid.x;
          break;
        case Special::kNctaidY:
          value = config_.grid.y;
          break;
        case Special::kNctaidZ:
          value = config_.grid.z;
          break;
        case Special::kLaneid:
          value = l;
          break;
        case Special::kWarpid:
          value = warp->index;
          break;
        case Special::kNwarpid:
          value = warps_;
          break;
        case Special::kSmid:
          value = worker;
          break;
        case Special::kNsmid:
          value = config_.workers;
          break;
        case Special::kLanemaskEq:
          value = bit;
          break;
        case Special::kLanemaskLe:
          value = bit | (bit - 1);
          break;
        case Special::kLanemaskLt:
          value = bit - 1;
          break;
        case Special::kLanemaskGe:
          value = ~(bit - 1);
          break;
        case Special::kLanemaskGt:
          value = ~(bit | (bit - 1));
          break;
        case Special::kDynamicSmem:
          value = config_.dynamic_shared;
          break;
        case Special::kTotalSmem:
        case Special::kAggrSmem:
          value = shared_bytes_;
          break;
        case Special::kEnvreg1:
          value = static_cast<uint32_t>(config_.grid_sync_workspace >> 32);
          break;
        case Special::kEnvreg2:
          value = static_cast<uint32_t>(config_.grid_sync_workspace);
          break;
        case Special::kOne:
          value = 1;
          break;
        case Special::kGridid:
        case Special::kZero:
        case Special::kReservedSmemOffset:
        case Special::kCount:
          break;
      }
      if (special == Special::kGridid || special == Special::kZero) {
        wide[l] = special == Special::kZero ? 0 : config_.grid_id;
      } else {
        narrow[l] = value;
      }
    }
  }
}

bool GridImpl::Begin(Worker& w, unsigned worker) {
  uint64_t linear;
  if (!TakeBlock(w, worker, &linear)) return false;
  std::unique_ptr<Block> block;
  if (!w.spare.empty()) {
    block = std::move(w.spare.back());
    w.spare.pop_back();
  } else {
    block = std::make_unique<Block>();
    Prepare(block.get());
  }
  block->linear = linear;
  block->worker = worker;
  block->index = {static_cast<uint32_t>(linear % config_.grid.x),
                  static_cast<uint32_t>(linear / config_.grid.x % config_.grid.y),
                  static_cast<uint32_t>(linear / (uint64_t{config_.grid.x} * config_.grid.y))};
  block->threads_alive = threads_;
  block->next_warp = 0;
  std::fill(std::begin(block->barriers), std::end(block->barriers), Barrier{});
  for (uint32_t n = 0; n < warps_; ++n) {
    uint32_t left = threads_ - n * kWarpSize;
    uint32_t lanes = left >= kWarpSize ? kAllLanes : (uint32_t{1} << left) - 1;
    Warp& warp = *block->warps[n];
    FillSpecials(&warp, *block, worker);
    warp.Start(kernel_, lanes);
  }
  w.resident.push_back(std::move(block));
  return true;
}

// Gives each warp of the block some quanta.
GridImpl::Turn GridImpl::RunBlock(Block* block, const std::atomic<bool>& yield) {
  bool ran = false;
  size_t done = 0;
  for (unsigned round = 0; round < kRoundsPerTurn; ++round) {
    done = 0;
    bool progress = false;
    for (size_t n = 0; n < block->warps.size(); ++n) {
      Warp& warp = *block->warps[n];
      if (warp.alive == 0) {
        ++done;
        continue;
      }
      WarpOutcome outcome = RunWarp(warp);
      if (outcome == WarpOutcome::kFaulted) return Turn::kStopped;
      if (outcome == WarpOutcome::kDone) ++done;
      progress |= outcome == WarpOutcome::kRan || outcome == WarpOutcome::kDone;
      if (yield.load(std::memory_order_relaxed) || failed_.load(std::memory_order_relaxed)) return Turn::kRan;
    }
    if (done == block->warps.size()) return Turn::kDone;
    ran |= progress;
    if (!progress) break;
  }
  return ran ? Turn::kRan : Turn::kIdle;
}

// No warp of this worker can go on: some sleep, or all wait at a barrier for ever, as a mistaken kernel does.
void GridImpl::Idle(Worker& w, const std::atomic<bool>& yield) const {
  if (yield.load(std::memory_order_relaxed)) return;
  uint64_t now = NowNanoseconds(), until = now + kIdleNanoseconds;
  for (const std::unique_ptr<Block>& b : w.resident) {
    for (const std::unique_ptr<Warp>& warp : b->warps) {
      if (warp->alive != 0 && warp->wake != 0) until = std::min(until, warp->wake);
    }
  }
  if (until > now) SleepNanoseconds(until - now);
}

Grid::Outcome GridImpl::Run(unsigned worker, const std::atomic<bool>& yield) {
  STASIS_CHECK(worker < workers_.size());
  Worker& w = workers_[worker];
  size_t idle = 0;
  size_t most = std::max(config_.max_resident, 1u);
  for (;;) {
    if (failed_) return Stopped();
    if (yield) return Outcome::kYielded;
    while (config_.cooperative && Begin(w, worker)) {
    }
    if (w.resident.empty() && !Begin(w, worker)) return Outcome::kNoMoreBlocks;
    Turn turn = RunBlock(w.resident.front().get(), yield);
    std::unique_ptr<Block> block = std::move(w.resident.front());
    w.resident.pop_front();
    switch (turn) {
      case Turn::kStopped:
        w.resident.push_front(std::move(block));
        return Stopped();
      case Turn::kDone:
        w.spare.push_back(std::move(block));
        finished_.fetch_add(1);
        idle = 0;
        continue;
      case Turn::kRan:
        idle = 0;
        break;
      case Turn::kIdle:
        ++idle;
        break;
    }
    w.resident.push_back(std::move(block));
    // The block may wait for others, so they get a turn: begun ones, and new ones while there is room.
    bool began = !config_.cooperative && w.resident.size() < most && Begin(w, worker);
    if (began) {
      std::rotate(w.resident.begin(), w.resident.end() - 1, w.resident.end());
      idle = 0;
    }
    if (idle >= w.resident.size()) {
      Idle(w, yield);
      idle = 0;
    }
  }
}

}  // namespace

std::unique_ptr<Grid> Grid::Create(LaunchConfig config) {
  return std::make_unique<GridImpl>(std::move(config));
}

}  // namespace softgpu::exec
