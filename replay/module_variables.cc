#include "replay/module_variables.h"

#include <algorithm>

#include "vmm/hold.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

constexpr uint64_t kPage = 4096;

unsigned long long Number(uint64_t value) { return value; }

}  // namespace

void PageSet::Add(uint64_t address, uint64_t size) {
  uint64_t begin = address / kPage * kPage, end = (address + size + kPage - 1) / kPage * kPage;
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second >= begin) --next;
  while (next != ranges_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = ranges_.erase(next);
  }
  ranges_.emplace(begin, end);
}

bool PageHold::Hold(const PageSet& pages) {
  bool any = false;
  for (const auto& [begin, end] : pages.ranges()) {
    if (!vmm::HoldAddresses(begin, end - begin).ok()) continue;
    held_.Add(begin, end - begin);
    any = true;
  }
  return any;
}

void PageHold::Drop() {
  for (const auto& [begin, end] : held_.ranges()) vmm::DropHold(begin, end - begin);
  held_ = PageSet();
}

Status ModuleVariables::Save(CUmodule module, const std::vector<std::string>& names) {
  variables_.clear();
  for (const std::string& name : names) {
    CUdeviceptr address = 0;
    size_t size = 0;
    const CUresult found = Driver().cuModuleGetGlobal_v2(&address, &size, module, name.c_str());
    if (found == CUDA_ERROR_NOT_FOUND || (found == CUDA_SUCCESS && size == 0)) continue;
    RETURN_IF_ERROR(DriverStatus(found, "cuModuleGetGlobal").WithContext("variable '" + name + "'"));
    Variable variable{name, address, std::vector<std::byte>(size)};
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuMemcpyDtoH_v2(variable.contents.data(), address, size), "cuMemcpyDtoH")
            .WithContext("variable '" + name + "'"));
    variables_.push_back(std::move(variable));
  }
  return {};
}

Status ModuleVariables::CheckPlaces(CUmodule module, const std::string& owner, PageSet* wrong) const {
  Status status;
  for (const Variable& variable : variables_) {
    CUdeviceptr address = 0;
    size_t size = 0;
    RETURN_IF_ERROR(DriverStatus(
        Driver().cuModuleGetGlobal_v2(&address, &size, module, variable.name.c_str()), "cuModuleGetGlobal"));
    if (address == variable.address && size == variable.contents.size()) continue;
    wrong->Add(address, size);
    if (status.ok())
      status = Errorf(StatusCode::kFailedPrecondition,
                      "variable '%s' of %s, at 0x%llx before, came back at 0x%llx", variable.name.c_str(),
                      owner.c_str(), Number(variable.address), Number(address));
  }
  return status;
}

Status ModuleVariables::PutBack() const {
  for (const Variable& variable : variables_) {
    const CUresult copied =
        Driver().cuMemcpyHtoD_v2(variable.address, variable.contents.data(), variable.contents.size());
    RETURN_IF_ERROR(DriverStatus(copied, "cuMemcpyHtoD").WithContext("variable '" + variable.name + "'"));
  }
  return {};
}

void ModuleVariables::AddPlaces(PageSet* pages) const {
  for (const Variable& variable : variables_) pages->Add(variable.address, variable.contents.size());
}

}  // namespace stasis::replay
