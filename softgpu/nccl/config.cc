#include "softgpu/nccl/config.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "softgpu/nccl/log.h"

namespace softgpu::nccl {

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;
// The first version with a configuration had this much.
constexpr size_t kShortest = offsetof(ncclConfig_t, cgaClusterSize);
constexpr int kMaxChannels = 64;

struct Field {
  const char* name;
  int ncclConfig_t::*member;
  int low, high, initial;
};
constexpr Field kFields[] = {
    {"blocking", &ncclConfig_t::blocking, 0, 1, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, 8, 4},
    {"minCTAs", &ncclConfig_t::minCTAs, 1, kMaxChannels, 1},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 1, kMaxChannels, kMaxChannels},
    {"splitShare", &ncclConfig_t::splitShare, 0, 1, 0},
    {"trafficClass", &ncclConfig_t::trafficClass, 0, INT_MAX, NCCL_CONFIG_UNDEF_INT},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 0, 1, 0},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO,
     NCCL_CTA_POLICY_DEFAULT},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 0, 1, 0},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 1, kMaxChannels, NCCL_CONFIG_UNDEF_INT},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 1, kMaxChannels, NCCL_CONFIG_UNDEF_INT},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 0, 1, 0},
};

}  // namespace

ncclResult_t ParseConfig(const ncclConfig_t* given, ncclConfig_t* config) {
  *config = NCCL_CONFIG_INITIALIZER;
  if (given != nullptr) {
    if (given->magic != kConfigMagic)
      return Fail(ncclInvalidArgument, "ncclConfig_t was not initialised with NCCL_CONFIG_INITIALIZER");
    if (given->size < kShortest) return Fail(ncclInvalidArgument, "ncclConfig_t: size is too small");
    std::memcpy(config, given, std::min(given->size, sizeof *config));
    config->size = sizeof *config;
  }
  if (const char* blocking = getenv("NCCL_COMM_BLOCKING"); blocking != nullptr && *blocking != '\0')
    config->blocking = atoi(blocking) != 0;
  for (const Field& field : kFields) {
    int& value = config->*field.member;
    if (value == NCCL_CONFIG_UNDEF_INT) {
      value = field.initial;
    } else if (value < field.low || value > field.high) {
      return Fail(ncclInvalidArgument, "ncclConfig_t: %s is %d, not %d to %d", field.name, value, field.low,
                  field.high);
    }
  }
  if (config->minCTAs > config->maxCTAs)
    return Fail(ncclInvalidArgument, "ncclConfig_t: minCTAs %d is more than maxCTAs %d", config->minCTAs,
                config->maxCTAs);
  return ncclSuccess;
}

}  // namespace softgpu::nccl
