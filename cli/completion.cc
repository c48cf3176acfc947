#include "cli/completion.h"

#include <fmt/format.h>

#include <vector>

namespace stasis {
namespace {

struct Word {
  std::string text;
  std::string what;
};

struct VerbDescription {
  std::string parent;  // "images" for `stasis images ls`; empty: none
  std::string name;
  std::string what;
  std::vector<Word> options;
  // Options with a fixed set of values: option, values.
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
  std::vector<std::string> positional_values;
  bool takes_task = false;
  bool takes_image = false;
  bool takes_operation = false;
  bool takes_queued = false;
  bool takes_node = false;
  bool takes_file = false;
  bool takes_program = false;
  bool has_verbs = false;

  std::string Path() const { return parent.empty() ? name : parent + " " + name; }
};

// CLI11 describes a set of values as "{a,b,c}" in the option's own description of its checks.
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  std::vector<std::string> values;
  std::string text = option.get_type_name();
  size_t begin = text.find('{'), end = text.find('}');
  if (begin == std::string::npos || end == std::string::npos) return values;
  for (size_t at = begin + 1; at < end;) {
    size_t comma = std::min(text.find(',', at), end);
    values.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return values;
}

void Describe(const CLI::Option& option, VerbDescription* verb) {
  std::vector<std::string> values = ValuesOf(option);
  if (option.get_positional()) {
    verb->positional_values = values;
    std::string kind = option.get_name();
    verb->takes_image = verb->takes_image || kind == "IMAGE";
    verb->takes_file = verb->takes_file || kind == "FILE";
    verb->takes_operation = verb->takes_operation || kind == "OPERATION";
    verb->takes_queued = verb->takes_queued || kind == "JOB";
    verb->takes_node = verb->takes_node || kind == "NODE";
    verb->takes_task = verb->takes_task || kind == "IMAGE" || kind == "NAME";
  }
  for (const std::string& name : option.get_snames())
    verb->options.push_back({"-" + name, option.get_description()});
  for (const std::string& name : option.get_lnames()) {
    verb->options.push_back({"--" + name, option.get_description()});
    if (!values.empty()) verb->values.emplace_back("--" + name, values);
  }
}

// Verbs, and right behind each the verbs below it.
void DescribeVerbs(const CLI::App& app, const std::string& parent, std::vector<VerbDescription>* verbs) {
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_group().empty()) continue;
    VerbDescription verb;
    verb.parent = parent;
    verb.name = sub->get_name();
    verb.what = sub->get_description();
    verb.takes_program = sub->get_prefix_command();
    verb.has_verbs = !sub->get_subcommands([](const CLI::App*) { return true; }).empty();
    for (const CLI::Option* option : sub->get_options()) Describe(*option, &verb);
    verbs->push_back(verb);
    DescribeVerbs(*sub, verb.name, verbs);
  }
}

std::vector<VerbDescription> DescribeVerbs(const CLI::App& app) {
  std::vector<VerbDescription> verbs;
  DescribeVerbs(app, "", &verbs);
  return verbs;
}

// Names of the verbs below `parent`, in one line.
std::string NamesBelow(const std::vector<VerbDescription>& verbs, const std::string& parent) {
  std::string names;
  for (const VerbDescription& verb : verbs) {
    if (verb.parent == parent) names += (names.empty() ? "" : " ") + verb.name;
  }
  return names;
}

// The commands whose output a verb's arguments are among.
std::vector<std::string> Sources(const VerbDescription& verb) {
  std::vector<std::string> sources;
  if (verb.takes_task) sources.push_back("stasis complete-tasks");
  if (verb.takes_image) sources.push_back("stasis complete-images");
  if (verb.takes_operation) sources.push_back("stasis complete-operations");
  if (verb.takes_queued) sources.push_back("stasis complete-queue");
  if (verb.takes_node) sources.push_back("stasis complete-nodes");
  return sources;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string OptionWords(const VerbDescription& verb) {
  std::string text;
  for (const Word& option : verb.options) text += (text.empty() ? "" : " ") + option.text;
  return text;
}

std::string Quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string BashArguments(const VerbDescription& verb) {
  if (verb.takes_program) return "compgen -c -f -- \"$current\"";
  std::string words;
  for (const std::string& source : Sources(verb)) words += (words.empty() ? "$(" : " $(") + source + ")";
  std::string files = verb.takes_file ? "compgen -f -- \"$current\"" : "";
  if (words.empty() && verb.takes_file) return files;
  std::string text = words.empty() ? Quoted(Joined(verb.positional_values)) : "\"" + words + "\"";
  return "compgen -W " + text + " -- \"$current\"" + (files.empty() ? "" : "; " + files);
}

std::string BashVerb(const VerbDescription& verb) {
  std::string text = fmt::format("    {})\n      case $previous in\n", Quoted(verb.Path()));
  for (const auto& [option, values] : verb.values) {
    text += fmt::format("        {}) COMPREPLY=($(compgen -W {} -- \"$current\")); return ;;\n", option,
                        Quoted(Joined(values)));
  }
  text += "      esac\n";
  std::string words = Quoted(OptionWords(verb));
  text += fmt::format(
      "      if [[ $current == -* ]]; then COMPREPLY=($(compgen -W {} -- \"$current\")); return; fi\n",
      words);
  return text + fmt::format("      COMPREPLY=($({})) ;;\n", BashArguments(verb));
}

// A verb that has verbs of its own is none by itself.
std::string BashBranch(const std::vector<VerbDescription>& verbs, const VerbDescription& verb) {
  return fmt::format(R"(  if [[ $verb == {0} ]]; then
    if ((COMP_CWORD == 2)); then
      COMPREPLY=($(compgen -W {1} -- "$current"))
      return
    fi
    verb="{0} ${{COMP_WORDS[2]}}"
  fi
)",
                     verb.name, Quoted(NamesBelow(verbs, verb.name) + " " + OptionWords(verb)));
}

std::string Bash(const CLI::App& app) {
  std::string branches, cases;
  std::vector<VerbDescription> verbs = DescribeVerbs(app);
  for (const VerbDescription& verb : verbs) {
    if (verb.has_verbs)
      branches += BashBranch(verbs, verb);
    else
      cases += BashVerb(verb);
  }
  return fmt::format(R"(# bash completion of stasis
_stasis() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W {} -- "$current"))
    return
  fi
{}  case $verb in
{}  esac
}}
complete -F _stasis stasis
)",
                     Quoted(NamesBelow(verbs, "") + " --help --version"), branches, cases);
}

std::string ZshArguments(const VerbDescription& verb) {
  if (verb.takes_program) return "_command_names -e; _files";
  std::string text;
  for (const std::string& source : Sources(verb)) {
    text += fmt::format("{}compadd -- ${{(f)\"$({})\"}}", text.empty() ? "" : "; ", source);
  }
  if (verb.takes_file) text += text.empty() ? "_files" : "; _files";
  return text.empty() ? "compadd -- " + Joined(verb.positional_values) : text;
}

std::string ZshVerb(const VerbDescription& verb) {
  std::string text = fmt::format("    {})\n      options=(", Quoted(verb.Path()));
  for (const Word& option : verb.options) text += " " + option.text;
  text += ")\n      case $words[CURRENT-1] in\n";
  for (const auto& [option, values] : verb.values)
    text += fmt::format("        {}) compadd {}; return ;;\n", option, Joined(values));
  text += "      esac\n      if [[ $words[CURRENT] == -* ]]; then compadd -- $options; return; fi\n";
  return text + fmt::format("      {} ;;\n", ZshArguments(verb));
}

std::string ZshBranch(const std::vector<VerbDescription>& verbs, const VerbDescription& verb) {
  return fmt::format(R"(  if [[ $verb == {0} ]]; then
    if ((CURRENT == 3)); then compadd -- {1}; return; fi
    verb="{0} $words[3]"
  fi
)",
                     verb.name, NamesBelow(verbs, verb.name) + " " + OptionWords(verb));
}

std::string Zsh(const CLI::App& app) {
  std::string branches, cases;
  std::vector<VerbDescription> verbs = DescribeVerbs(app);
  for (const VerbDescription& verb : verbs) {
    if (verb.has_verbs)
      branches += ZshBranch(verbs, verb);
    else
      cases += ZshVerb(verb);
  }
  return "#compdef stasis\n_stasis() {\n  local -a options\n  local verb=$words[2]\n  if ((CURRENT == 2)); "
         "then compadd -- " +
         NamesBelow(verbs, "") + "; compadd -- --help --version; return; fi\n" + branches +
         "  case $verb in\n" + cases + "  esac\n}\ncompdef _stasis stasis\n";
}

// In `stasis images rm`, `rm` is no verb of its own.
std::string FishCondition(const std::vector<VerbDescription>& verbs, const VerbDescription& verb) {
  if (!verb.parent.empty()) {
    return fmt::format("__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}", verb.parent,
                       verb.name);
  }
  std::string condition = "__fish_seen_subcommand_from " + verb.name;
  for (const VerbDescription& other : verbs) {
    if (other.has_verbs && other.name != verb.name)
      condition += "; and not __fish_seen_subcommand_from " + other.name;
  }
  return condition;
}

std::string FishArguments(const VerbDescription& verb) {
  if (verb.takes_program) return " -a '(__fish_complete_command)'";
  std::string text;
  for (const std::string& source : Sources(verb)) text += (text.empty() ? "(" : " (") + source + ")";
  std::string no_files = verb.takes_file ? "" : " -f";
  if (text.empty() && verb.takes_file) return "";
  return no_files + " -a " + Quoted(text.empty() ? Joined(verb.positional_values) : text);
}

std::string FishName(const std::vector<VerbDescription>& verbs, const VerbDescription& verb) {
  std::string condition = "__fish_use_subcommand";
  if (!verb.parent.empty()) {
    condition = fmt::format("__fish_seen_subcommand_from {}; and not __fish_seen_subcommand_from {}",
                            verb.parent, NamesBelow(verbs, verb.parent));
  }
  return fmt::format("complete -c stasis -f -n {} -a {} -d {}\n", Quoted(condition), verb.name,
                     Quoted(verb.what));
}

std::string FishVerb(const std::vector<VerbDescription>& verbs, const VerbDescription& verb) {
  std::string in_verb = "complete -c stasis -n " + Quoted(FishCondition(verbs, verb));
  std::string text = FishName(verbs, verb);
  if (verb.has_verbs) return text;
  for (const Word& option : verb.options) {
    bool is_long = option.text.rfind("--", 0) == 0;
    text += fmt::format("{} {} {} -d {}", in_verb, is_long ? "-l" : "-s", option.text.substr(is_long ? 2 : 1),
                        Quoted(option.what));
    for (const auto& [name, values] : verb.values) {
      if (name == option.text) text += fmt::format(" -x -a {}", Quoted(Joined(values)));
    }
    text += "\n";
  }
  std::string arguments = FishArguments(verb);
  return arguments.empty() ? text : text + in_verb + arguments + "\n";
}

std::string Fish(const CLI::App& app) {
  std::string text = "# fish completion of stasis\n";
  std::vector<VerbDescription> verbs = DescribeVerbs(app);
  for (const VerbDescription& verb : verbs) text += FishVerb(verbs, verb);
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "zsh") return Zsh(app);
  return shell == "fish" ? Fish(app) : Bash(app);
}

}  // namespace stasis
