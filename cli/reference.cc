#include "cli/reference.h"

#include <nlohmann/json.hpp>

namespace stasis {
namespace {

nlohmann::json Names(const CLI::Option& option) {
  nlohmann::json names = nlohmann::json::array();
  if (option.get_positional()) names.push_back(option.get_name());
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

nlohmann::json DescribeOption(const CLI::Option& option) {
  return {{"names", Names(option)},
          {"argument", option.get_type_size() == 0 ? "" : option.get_type_name()},
          {"what", option.get_description()},
          {"required", option.get_required()},
          {"position", option.get_positional()},
          {"many", option.get_items_expected_max() > 1 && option.get_positional()}};
}

}  // namespace

nlohmann::json DescribeProgram(const CLI::App& app) {
  nlohmann::json options = nlohmann::json::array(), verbs = nlohmann::json::array();
  for (const CLI::Option* option : app.get_options()) options.push_back(DescribeOption(*option));
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!verb->get_group().empty()) verbs.push_back(DescribeProgram(*verb));
  }
  return {{"name", app.get_name()}, {"what", app.get_description()},       {"footer", app.get_footer()},
          {"options", options},     {"program", app.get_prefix_command()}, {"verbs", verbs}};
}

}  // namespace stasis
