// What the hooks of graphs share: parameters with handles in them, as the driver below must be given them.
#ifndef INTERCEPT_HOOKS_GRAPH_H_
#define INTERCEPT_HOOKS_GRAPH_H_

#include <vector>

#include "intercept/call.h"
#include "replay/graph_records.h"
#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::hooks {

// An array of nodes. Costs nothing until the first rebuild.
class RealNodes {
 public:
  RealNodes(const CUgraphNode* visible, size_t count) : nodes_(visible) {
    if (!replay::Translating() || visible == nullptr || count == 0) return;
    for (size_t i = 0; i < count; ++i) real_.push_back(replay::ToReal(visible[i]));
    nodes_ = real_.data();
  }
  RealNodes(const RealNodes&) = delete;
  RealNodes& operator=(const RealNodes&) = delete;
  const CUgraphNode* get() const { return nodes_; }

 private:
  const CUgraphNode* nodes_;
  std::vector<CUgraphNode> real_;
};

// Parameters of a node. Null stays null.
inline void TranslateParams(CUDA_KERNEL_NODE_PARAMS_v1* params) {
  params->func = replay::ToReal(params->func);
}
template <typename Kernel>
void TranslateKernel(Kernel* params) {
  params->func = replay::ToReal(params->func);
  params->kern = replay::ToReal(params->kern);
  params->ctx = replay::ToReal(params->ctx);
}
inline void TranslateParams(CUDA_KERNEL_NODE_PARAMS_v2* params) { TranslateKernel(params); }
inline void TranslateParams(CUDA_MEMCPY3D* params) {
  if (params->srcMemoryType == CU_MEMORYTYPE_ARRAY) params->srcArray = replay::ToReal(params->srcArray);
  if (params->dstMemoryType == CU_MEMORYTYPE_ARRAY) params->dstArray = replay::ToReal(params->dstArray);
}
inline void TranslateParams(CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  params->ctx = replay::ToReal(params->ctx);
}
void TranslateParams(CUgraphNodeParams* params);

template <typename Params>
class RealParams {
 public:
  explicit RealParams(const Params* visible) : params_(visible) {
    if (!replay::Translating() || visible == nullptr) return;
    real_ = *visible;
    TranslateParams(&real_);
    params_ = &real_;
  }
  RealParams(const RealParams&) = delete;
  RealParams& operator=(const RealParams&) = delete;
  const Params* get() const { return params_; }
  // For functions that write to it; the program's own until the first rebuild.
  Params* get_mutable() { return const_cast<Params*>(params_); }

 private:
  const Params* params_;
  Params real_{};
};

// Adds a node; `rest` are the driver's parameters behind the dependencies.
template <typename Function, typename... Rest>
CUresult AddNode(const Call& call, CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                 size_t count, Rest... rest) {
  const RealNodes real(dependencies, count);
  const CUresult result = call.Real<Function>()(node, replay::ToReal(graph), real.get(), count, rest...);
  if (result == CUDA_SUCCESS) *node = replay::AdoptNode(*node);
  return result;
}

// A list of nodes that the driver has filled in.
inline void AdoptNodes(CUresult result, CUgraphNode* nodes, const size_t* count) {
  if (result != CUDA_SUCCESS || !replay::Translating() || nodes == nullptr || count == nullptr) return;
  for (size_t i = 0; i < *count; ++i) nodes[i] = replay::AdoptNode(nodes[i]);
}

}  // namespace stasis::hooks

#endif  // INTERCEPT_HOOKS_GRAPH_H_
